# With a benchmark.training_share below 1: choose the training pairs that are worth measuring, before stage 6 collects them.
#
# The job measures what it chooses, into a journal beside those of the chunks; they take its rows over.
CHOSEN = (
    ["results/active/{arch}/{op}.parquet"]
    if SETTINGS.benchmark.training_share < 1
    else []
)


def chosen(wildcards):
    """Return the option that names the chosen pairs, or nothing where all are measured."""
    return "".join(f"--chosen {path.format(**wildcards)}" for path in CHOSEN)


checkpoint active:
    input:
        script=source("workflow/scripts/active.py"),
        hardware=SETTINGS.hardware,
        coefficients=source("config/simulated_device.yaml"),
        build=each_chunk("results/build/{arch}/{op}/{chunk}.parquet"),
        support=each_chunk("results/support/{arch}/{op}/{chunk}.parquet"),
        aliases=[ancient(path) for path in ALIASES],
        problems=ancient("results/problems/{op}.parquet"),
        driver=[ancient(path) for path in DRIVER],
        libraries=each_chunk(*MODULE) if MEASURED else [],
    output:
        "results/active/{arch}/{op}.parquet",
    log:
        "logs/{arch}/{op}/active.log",
    conda:
        "../../envs/tileseer.yaml"
    resources:
        gpu=1,
    params:
        modules=modules("active"),
        made=each_content(
            "results/problems/{op}.parquet",
            "results/build/{arch}/{op}/{chunk}.parquet",
            "results/support/{arch}/{op}/{chunk}.parquet",
            *DRIVER,
            *MODULE,
        ),
        aliases=aliases,
        aliases_content=content(*ALIASES),
        libraries=libraries_of,
        journal="results/journals/{arch}/{op}/active.csv",
        lock=SETTINGS.lock.to_json(),
        product=product,
        settings=SETTINGS.benchmark.to_json(),
    shell:
        "python {input.script} --arch {wildcards.arch} --operation {wildcards.op}"
        " --support {input.support} --build {input.build} --problems {input.problems}"
        " --hardware {input.hardware:q} --product={params.product} --coefficients {input.coefficients}"
        " --settings {params.settings:q} --lock {params.lock:q} {params.aliases} {params.libraries} --journal {params.journal} --output {output} 2>&1 | tee {log}"
