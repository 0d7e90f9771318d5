# Stage 6: measure the pairs of a chunk, one job at a time on the GPU.
#
# The journals are no output: Snakemake would remove them before the job, and with them what was measured.
# Without a budget nothing is shared, and the number of chunks is no reason to run again.
JOURNAL = "results/journals/{arch}/{operation}/{chunk}.csv"
REPEATS = "results/journals/{arch}/{operation}/again/{chunk}.csv"
JOURNALS = {
    "journal": JOURNAL,
    "repeats": REPEATS,
    "shares": [len(CHUNKS)] if SETTINGS.benchmark.budget else [],
}


rule benchmark:
    input:
        **stage("benchmark", ["benchmark"], DEVICE),
        build="results/build/{arch}/{operation}/{chunk}.parquet",
        support="results/support/{arch}/{operation}/{chunk}.parquet",
        problems="results/problems/{operation}.parquet",
        aliases=ALIASES,
        chosen=CHOSEN,
        driver=measuring_driver,
        modules=MODULE,
        recording=recording,
    output:
        receipt="results/benchmark/{arch}/{operation}/{chunk}.json",
    log:
        "logs/{arch}/{operation}/benchmark/{chunk}.log",
    benchmark:
        "logs/{arch}/{operation}/benchmark/{chunk}.tsv"
    conda:
        "../../envs/tileseer.yaml"
    resources:
        gpu=gpus,
        mem_mb=1024,
    params:
        **command("benchmark", product=product, **JOURNALS),
    message:
        "Measure {wildcards.operation} for {wildcards.arch}, chunk {wildcards.chunk}"
    shell:
        run("--memory-mib {resources.mem_mb}")
