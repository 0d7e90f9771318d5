# With a benchmark.training_share below 1: choose the training pairs that are worth measuring, before stage 6.
#
# The job measures what it chooses, into a journal beside those of the chunks; they take its rows over.
rule active:
    input:
        build=each_chunk("results/build/{arch}/{operation}/{chunk}.parquet"),
        support=each_chunk("results/support/{arch}/{operation}/{chunk}.parquet"),
        problems="results/problems/{operation}.parquet",
        hardware=HARDWARE,
        coefficients=COEFFICIENTS,
        aliases=ALIASES,
        driver=DRIVER,
        modules=each_chunk(MODULE),
        settings=stage_file("active", ["benchmark"]),
    output:
        chosen="results/active/{arch}/{operation}.parquet",
    log:
        "logs/{arch}/{operation}/active.log",
    conda:
        "../../envs/tileseer.yaml"
    resources:
        gpu=1,
        mem_mb=1024,
    params:
        product=product,
        journal="results/journals/{arch}/{operation}/active.csv",
    message:
        "Choose what to measure of {wildcards.operation} for {wildcards.arch}"
    shell:
        'python "$SCRIPTS"/active.py --arch {wildcards.arch} --operation {wildcards.operation}'
        " --build {input.build} --support {input.support} --problems {input.problems} --aliases {input.aliases}"
        " --hardware {input.hardware:q} --product {params.product:q} --coefficients {input.coefficients:q}"
        " --driver {input.driver} --modules {input.modules}"
        " --settings {input.settings} --journal {params.journal} --chosen {output.chosen} 2>&1 | tee {log}"


CHOSEN = rules.active.output.chosen if SETTINGS.benchmark.training_share < 1 else []
