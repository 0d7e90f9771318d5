# Stage 11: the directory that a client loads.
rule publish:
    input:
        modules=modules("publish"),
        script=source("workflow/scripts/publish.py"),
        trained=each_operation(*TRAINED.values()),
        served=lambda wildcards: (
            each_operation(*SERVED.values())(wildcards)
            if is_served(wildcards.arch)
            else []
        ),
        validation=each_operation("results/validation/{arch}/{op}.json"),
    output:
        directory("results/models/{arch}"),
    log:
        "logs/{arch}/publish.log",
    localrule: True
    conda:
        "../../envs/tilewright.yaml"
    params:
        made=lambda wildcards: each_operation_content(
            "results/validation/{arch}/{op}.json",
            *TRAINED.values(),
            *(SERVED.values() if is_served(wildcards.arch) else ()),
        )(wildcards),
        training=[f"results/training/{{arch}}/{op}" for op in SETTINGS.operations],
        serving=lambda wildcards: (
            " ".join(
                [
                    "--serving",
                    *(
                        f"results/serving/{wildcards.arch}/{op}"
                        for op in SETTINGS.operations
                    ),
                ]
            )
            if is_served(wildcards.arch)
            else ""
        ),
    shell:
        "python {input.script} --training {params.training} --validation {input.validation}"
        " {params.serving} --output {output} 2>&1 | tee {log}"
