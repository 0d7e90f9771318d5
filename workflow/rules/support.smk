# Stage 5: decide on the CPU which pairs can run.
rule support:
    input:
        record=RECORD_OF_RUN,
        build="results/build/{arch}/{operation}/{chunk}.parquet",
        problems="results/problems/{operation}.parquet",
        hardware=HARDWARE,
    output:
        support="results/support/{arch}/{operation}/{chunk}.parquet",
    log:
        "logs/{arch}/{operation}/support/{chunk}.log",
    conda:
        "../../envs/tileseer.yaml"
    params:
        code=code("support"),
        tables=tables(HARDWARE),
        product=product,
    shell:
        f"python {SCRIPTS}/support.py {CHECKED}"
        " --arch {wildcards.arch} --operation {wildcards.operation} --chunk {wildcards.chunk}"
        " --build {input.build} --problems {input.problems}"
        " --hardware {input.hardware:q} --product {params.product:q}"
        " --support {output.support} > {log} 2>&1"
