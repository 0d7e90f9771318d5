# Stage 9: score each model on problems of real networks that it has never seen.
checkpoint validation:
    input:
        modules=modules("validation"),
        script=source("workflow/scripts/validation.py"),
        trained=[ancient(path) for path in TRAINED.values()],
        dataset=ancient("results/datasets/{arch}/{op}.parquet"),
    output:
        "results/validation/{arch}/{op}.json",
    log:
        "logs/{arch}/{op}/validation.log",
    conda:
        "../../envs/tilewright.yaml"
    threads: 1
    params:
        made=content("results/datasets/{arch}/{op}.parquet", *TRAINED.values()),
        training=lambda wildcards, input: os.path.dirname(input.trained[0]),
    shell:
        "python {input.script} --dataset {input.dataset} --training {params.training} --threads {threads}"
        " --output {output} 2>&1 | tee {log}"
