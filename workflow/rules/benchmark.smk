# Stage 6: measure the pairs of a chunk, one job at a time on the GPU.
#
# The journals are no output: Snakemake would remove them before the job, and with them what was measured.
rule benchmark:
    input:
        record=RECORD_OF_RUN,
        build="results/build/{arch}/{operation}/{chunk}.parquet",
        support="results/support/{arch}/{operation}/{chunk}.parquet",
        problems="results/problems/{operation}.parquet",
        hardware=HARDWARE,
        coefficients=COEFFICIENTS,
        aliases=ALIASES,
        driver=measuring_driver,
        module=MODULE,
    output:
        receipt="results/benchmark/{arch}/{operation}/{chunk}.json",
    log:
        "logs/{arch}/{operation}/benchmark/{chunk}.log",
    conda:
        "../../envs/tileseer.yaml"
    resources:
        gpu=1,
        mem_mb=1024,
    params:
        settings=settings("benchmark"),
        code=code("benchmark"),
        tables=tables(HARDWARE, COEFFICIENTS),
        machine=machine,
        product=product,
        journal="results/journals/{arch}/{operation}/{chunk}.csv",
        again="results/journals/{arch}/{operation}/again/{chunk}.csv",
        # Without a budget nothing is shared, and the number of chunks is no reason to run again.
        shares=len(CHUNKS) if SETTINGS.benchmark.budget else 1,
    shell:
        f"python {SCRIPTS}/benchmark.py {CHECKED}"
        " --arch {wildcards.arch} --operation {wildcards.operation}"
        " --chunk {wildcards.chunk} --build {input.build} --support {input.support} --problems {input.problems}"
        " --aliases {input.aliases} --hardware {input.hardware:q} --product {params.product:q} --coefficients {input.coefficients:q}"
        " --driver {input.driver} --module {input.module} --shares {params.shares}"
        " --settings {params.settings:q} {params.machine:q} --journal {params.journal} --again {params.again}"
        " --receipt {output.receipt} > {log} 2>&1"
