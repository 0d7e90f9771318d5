# Stage 4: compile a chunk's kernels, or estimate what they would cost.
from tileseer.devices.emulated import refuse_without_decoder

NATIVE_SOURCES = [path.as_posix() for path in sorted(Path(NATIVE).glob("*.[ch]*"))]
COMPILING = ["compile", "ck", "cutlass"]
COMPILES = SETTINGS.compile.toolchain != "none"
RUNS_KERNELS = {"cuda": "nvcc", "hip": "hipcc", "emulated": "hipcc"}
LINKED = SETTINGS.benchmark.device in RUNS_KERNELS
EMULATED = SETTINGS.benchmark.device == "emulated"
MEASURED = LINKED and not EMULATED

if LINKED and SETTINGS.compile.toolchain != RUNS_KERNELS[SETTINGS.benchmark.device]:
    raise WorkflowError(
        f"benchmark.device is {SETTINGS.benchmark.device}, but compile.toolchain is {SETTINGS.compile.toolchain}; "
        f"set it to {RUNS_KERNELS[SETTINGS.benchmark.device]}"
    )
if EMULATED:
    try:
        refuse_without_decoder()
    except UserError as error:
        raise WorkflowError(str(error)) from None

# Made in some configurations alone: kernels of the same machine code, and what a real or an emulated GPU loads.
ALIASES = ["results/aliases/{arch}/{operation}.parquet"] if COMPILES else []
DRIVER = ["results/libraries/{arch}/driver.so"] if LINKED else []
MODULE = ["results/libraries/{arch}/{operation}/{chunk}.so"] if LINKED else []


rule compile:
    input:
        **stage(
            "compile",
            COMPILING,
            DEVICE,
            # The launchers become part of the objects; of nothing that is only estimated.
            NATIVE_SOURCES if SETTINGS.compile.toolchain == "nvcc" else [],
            toolchain=TOOLCHAIN,
        ),
        configs="results/configs/{arch}/{operation}.parquet",
        plan="results/configs/{arch}/{operation}.plan.tsv",
        headers="results/headers/{arch}/{operation}/{chunk}.tar",
    output:
        build="results/build/{arch}/{operation}/{chunk}.parquet",
        costs="results/build/{arch}/{operation}/{chunk}.costs.parquet",
    log:
        "logs/{arch}/{operation}/compile/{chunk}.log",
    benchmark:
        "logs/{arch}/{operation}/compile/{chunk}.tsv"
    conda:
        "../../envs/tileseer.yaml"
    resources:
        mem_mb=memory_mib(SETTINGS.compile),
    params:
        **command("compile", product=product, native=NATIVE),
    message:
        "Compile {wildcards.operation} for {wildcards.arch}, chunk {wildcards.chunk}"
    shell:
        run()


# With a compiler: which kernels have the same machine code, so that one of them is measured for all.
rule aliases:
    input:
        **stage("aliases"),
        build=each_chunk("results/build/{arch}/{operation}/{chunk}.parquet"),
        support=each_chunk("results/support/{arch}/{operation}/{chunk}.parquet"),
    output:
        aliases="results/aliases/{arch}/{operation}.parquet",
    log:
        "logs/{arch}/{operation}/aliases.log",
    benchmark:
        "logs/{arch}/{operation}/aliases.tsv"
    conda:
        "../../envs/tileseer.yaml"
    params:
        **command("aliases"),
    message:
        "Find kernels of {wildcards.operation} for {wildcards.arch} with the same machine code"
    shell:
        run()


# For a real or an emulated GPU: the kernels of a chunk as a module, and the driver that runs them.
rule libraries:
    input:
        **stage("libraries", COMPILING, reads=NATIVE_SOURCES, toolchain=TOOLCHAIN),
        headers="results/headers/{arch}/{operation}/{chunk}.tar",
        build="results/build/{arch}/{operation}/{chunk}.parquet",
    output:
        library="results/libraries/{arch}/{operation}/{chunk}.so",
    log:
        "logs/{arch}/{operation}/libraries/{chunk}.log",
    benchmark:
        "logs/{arch}/{operation}/libraries/{chunk}.tsv"
    conda:
        "../../envs/tileseer.yaml"
    resources:
        mem_mb=memory_mib(SETTINGS.compile),
    params:
        **command("libraries", native=NATIVE, device=SETTINGS.benchmark.device),
    message:
        "Link the kernels of {wildcards.operation} for {wildcards.arch}, chunk {wildcards.chunk}"
    shell:
        run()


use rule libraries as driver with:
    input:
        **stage("libraries", COMPILING, reads=NATIVE_SOURCES, toolchain=TOOLCHAIN),
    output:
        library="results/libraries/{arch}/driver.so",
    log:
        "logs/{arch}/driver.log",
    benchmark:
        "logs/{arch}/driver.tsv"
    message:
        "Build the measuring driver for {wildcards.arch}"
