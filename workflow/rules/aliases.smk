# With a compiler: which kernels have the same machine code, so that one of them is measured for all.
ALIASES = (
    []
    if SETTINGS.compile.toolchain == "none"
    else ["results/aliases/{arch}/{op}.parquet"]
)


def aliases(wildcards):
    """Return the option that names the aliases, or nothing where no machine code is known."""
    return "".join(f"--aliases {path.format(**wildcards)}" for path in ALIASES)


checkpoint aliases:
    input:
        script=source("workflow/scripts/aliases.py"),
        build=each_chunk("results/build/{arch}/{op}/{chunk}.parquet"),
        support=each_chunk("results/support/{arch}/{op}/{chunk}.parquet"),
    output:
        "results/aliases/{arch}/{op}.parquet",
    log:
        "logs/{arch}/{op}/aliases.log",
    conda:
        "../../envs/tileseer.yaml"
    params:
        modules=modules("aliases"),
        made=each_content(
            "results/build/{arch}/{op}/{chunk}.parquet",
            "results/support/{arch}/{op}/{chunk}.parquet",
        ),
    shell:
        "python {input.script} --build {input.build} --support {input.support} --output {output} 2>&1 | tee {log}"
