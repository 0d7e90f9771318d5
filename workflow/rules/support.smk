# Stage 5: decide on the CPU which pairs can run.
checkpoint support:
    input:
        modules=modules("support"),
        script=source("workflow/scripts/support.py"),
        hardware=SETTINGS.hardware,
        build=ancient("results/build/{arch}/{op}/{chunk}.parquet"),
        problems=ancient("results/problems/{op}.parquet"),
    output:
        "results/support/{arch}/{op}/{chunk}.parquet",
    log:
        "logs/{arch}/{op}/support/{chunk}.log",
    conda:
        "../../envs/tilewright.yaml"
    params:
        made=content(
            "results/build/{arch}/{op}/{chunk}.parquet",
            "results/problems/{op}.parquet",
        ),
        product=product,
    shell:
        "python {input.script} --operation {wildcards.op} --build {input.build} --problems {input.problems}"
        " --hardware {input.hardware:q} --product={params.product} --output {output} 2>&1 | tee {log}"
