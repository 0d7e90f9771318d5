# Stage 6: measure the pairs of a chunk, one job at a time on the GPU.
#
# The journal is no output: Snakemake would remove it before the job, and with it what was measured.
def recording(wildcards):
    """Return the table that the device replays, if it is one that does."""
    if SETTINGS.benchmark.device != "recorded":
        return []
    return f"config/recordings/{product(wildcards)}/{wildcards.op}.parquet"


checkpoint benchmark:
    input:
        script=source("workflow/scripts/benchmark.py"),
        hardware=SETTINGS.hardware,
        coefficients=source("config/simulated_device.yaml"),
        build=ancient("results/build/{arch}/{op}/{chunk}.parquet"),
        support=ancient("results/support/{arch}/{op}/{chunk}.parquet"),
        problems=ancient("results/problems/{op}.parquet"),
        aliases=[ancient(path) for path in ALIASES],
        chosen=[ancient(path) for path in CHOSEN],
        driver=[ancient(path) for path in DRIVER],
        libraries=[ancient(path) for path in MODULE],
        recording=recording,
    output:
        "results/benchmark/{arch}/{op}/{chunk}.json",
    log:
        "logs/{arch}/{op}/benchmark/{chunk}.log",
    conda:
        "../../envs/tileseer.yaml"
    resources:
        gpu=1,
    params:
        modules=modules("benchmark"),
        made=content(
            "results/build/{arch}/{op}/{chunk}.parquet",
            "results/support/{arch}/{op}/{chunk}.parquet",
            "results/problems/{op}.parquet",
            *ALIASES,
            *CHOSEN,
            *DRIVER,
            *MODULE,
        ),
        aliases=aliases,
        libraries=libraries_of,
        chosen=chosen,
        journal="results/journals/{arch}/{op}/{chunk}.csv",
        lock=SETTINGS.lock.to_json(),
        product=product,
        settings=SETTINGS.benchmark.to_json(),
        # Without a budget nothing is shared, and the number of chunks is no reason to run again.
        shares=SETTINGS.configs.chunks if SETTINGS.benchmark.budget else 1,
    shell:
        "python {input.script} --arch {wildcards.arch} --operation {wildcards.op} --chunk {wildcards.chunk}"
        " --support {input.support} --build {input.build} --problems {input.problems}"
        " --hardware {input.hardware:q} --product={params.product} --coefficients {input.coefficients}"
        " --shares {params.shares} --settings {params.settings:q} --lock {params.lock:q} {params.aliases} {params.chosen} {params.libraries} --journal {params.journal} --receipt {output} 2>&1 | tee {log}"
