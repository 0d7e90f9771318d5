# Stage 11: the directory that a client loads.
rule publish:
    input:
        modules=modules("publish"),
        script=source("workflow/scripts/publish.py"),
        trained=each_operation(*TRAINED.values()),
        served=each_operation(*SERVED.values()),
        validation=each_operation("results/validation/{arch}/{op}.json"),
    output:
        directory("results/models/{arch}"),
    log:
        "logs/{arch}/publish.log",
    localrule: True
    conda:
        "../../envs/tilewright.yaml"
    params:
        made=each_operation_content(
            "results/validation/{arch}/{op}.json",
            *TRAINED.values(),
            *SERVED.values(),
        ),
        training=[f"results/training/{{arch}}/{op}" for op in SETTINGS.operations],
        serving=[f"results/serving/{{arch}}/{op}" for op in SETTINGS.operations],
    shell:
        "python {input.script} --training {params.training} --validation {input.validation}"
        " --serving {params.serving} --output {output} 2>&1 | tee {log}"
