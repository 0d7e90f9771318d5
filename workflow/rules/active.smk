# With a benchmark.training_share below 1: choose the training pairs that are worth measuring, before stage 6.
#
# The job measures what it chooses, into a journal beside those of the chunks; they take its rows over.
CHOSEN = (
    ["results/active/{arch}/{operation}.parquet"]
    if SETTINGS.benchmark.training_share < 1
    else []
)
ACTIVE_JOURNAL = "results/journals/{arch}/{operation}/active.csv"


rule active:
    input:
        **stage("active", ["benchmark"], DEVICE),
        build=each_chunk("results/build/{arch}/{operation}/{chunk}.parquet"),
        support=each_chunk("results/support/{arch}/{operation}/{chunk}.parquet"),
        problems="results/problems/{operation}.parquet",
        aliases=ALIASES,
        driver=DRIVER,
        modules=each_chunk(MODULE),
    output:
        chosen="results/active/{arch}/{operation}.parquet",
    log:
        "logs/{arch}/{operation}/active.log",
    benchmark:
        "logs/{arch}/{operation}/active.tsv"
    conda:
        "../../envs/tileseer.yaml"
    resources:
        gpu=gpus,
        mem_mb=1024,
    params:
        **command("active", product=product, journal=ACTIVE_JOURNAL),
    message:
        "Choose what to measure of {wildcards.operation} for {wildcards.arch}"
    shell:
        run("--memory-mib {resources.mem_mb}")
