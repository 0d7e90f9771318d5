# Stage 5: decide on the CPU which pairs can run.
#
# By our rules, or by the host code of the compiled library; where the two differ is then a second table.
LIBRARY = SETTINGS.support.source == "library"
BUNDLE = "results/headers/{arch}/{operation}/{chunk}.tar"
DIFFERENT = "results/support/{arch}/{operation}/{chunk}.disagreements.parquet"
STAND_IN = [
    source(f"workflow/native/{name}")
    for name in ("hip_stand_in.cpp", "emulated_device.hpp")
]


rule support:
    input:
        **stage(
            "support",
            ["support", *(COMPILING if LIBRARY else [])],
            HARDWARE,
            STAND_IN if LIBRARY else [],
            toolchain=TOOLCHAIN if LIBRARY else "",
        ),
        **({"headers": BUNDLE} if LIBRARY else {}),
        build="results/build/{arch}/{operation}/{chunk}.parquet",
        problems="results/problems/{operation}.parquet",
    output:
        **({"disagreements": DIFFERENT} if LIBRARY else {}),
        support="results/support/{arch}/{operation}/{chunk}.parquet",
    log:
        "logs/{arch}/{operation}/support/{chunk}.log",
    benchmark:
        "logs/{arch}/{operation}/support/{chunk}.tsv"
    conda:
        "../../envs/tileseer.yaml"
    resources:
        **({"mem_mb": memory_mib(SETTINGS.compile)} if LIBRARY else {}),
    params:
        **command("support", product=product, native=[NATIVE] if LIBRARY else []),
    message:
        "Find the pairs of {wildcards.operation} for {wildcards.arch} that can run, chunk {wildcards.chunk}"
    shell:
        run()
