# Between 4 and 6, for a real GPU alone: the kernels of a chunk as a module, and the driver that measures with it.
REAL_GPUS = {"cuda": "nvcc", "hip": "hipcc"}
MEASURED = SETTINGS.benchmark.device in REAL_GPUS

if MEASURED and SETTINGS.compile.toolchain != REAL_GPUS[SETTINGS.benchmark.device]:
    raise WorkflowError(
        f"benchmark.device is {SETTINGS.benchmark.device}, but compile.toolchain is {SETTINGS.compile.toolchain}; "
        f"set it to {REAL_GPUS[SETTINGS.benchmark.device]}"
    )

DRIVER = ["results/libraries/{arch}/driver.so"] if MEASURED else []
MODULE = ["results/libraries/{arch}/{op}/{chunk}.so"] if MEASURED else []


def libraries_of(wildcards, input):
    """Return the options that name driver and modules, or nothing where no real GPU is measured."""
    return f"--driver {input.driver} --modules {input.libraries}" if MEASURED else ""


checkpoint libraries:
    input:
        script=source("workflow/scripts/libraries.py"),
        native=NATIVE_SOURCES,
        headers=made_by(
            "headers", "results/headers/{arch}/{op}/{chunk}.tar", user="libraries"
        ),
        build=made_by(
            "compile", "results/build/{arch}/{op}/{chunk}.parquet", user="libraries"
        ),
    output:
        "results/libraries/{arch}/{op}/{chunk}.so",
    log:
        "logs/{arch}/{op}/libraries/{chunk}.log",
    conda:
        "../../envs/tileseer.yaml"
    resources:
        mem_mb=memory_mib(SETTINGS.compile),
    params:
        modules=modules("libraries"),
        made=content(
            "results/headers/{arch}/{op}/{chunk}.tar",
            "results/build/{arch}/{op}/{chunk}.parquet",
        ),
        settings=SETTINGS.compile.to_json(),
        ck=SETTINGS.ck.to_json(),
        cutlass=SETTINGS.cutlass.to_json(),
        native=lambda wildcards, input: os.path.dirname(input.native[0]),
        toolchain=TOOLCHAIN,
    shell:
        "python {input.script} --arch {wildcards.arch} --native {params.native}"
        " --headers {input.headers} --build {input.build} --settings {params.settings:q} --ck {params.ck:q}"
        " --cutlass {params.cutlass:q} --output {output} 2>&1 | tee {log}"


checkpoint driver:
    input:
        script=source("workflow/scripts/libraries.py"),
        native=NATIVE_SOURCES,
    output:
        "results/libraries/{arch}/driver.so",
    log:
        "logs/{arch}/driver.log",
    conda:
        "../../envs/tileseer.yaml"
    resources:
        mem_mb=memory_mib(SETTINGS.compile),
    params:
        modules=modules("libraries"),
        settings=SETTINGS.compile.to_json(),
        ck=SETTINGS.ck.to_json(),
        cutlass=SETTINGS.cutlass.to_json(),
        native=lambda wildcards, input: os.path.dirname(input.native[0]),
        toolchain=TOOLCHAIN,
    shell:
        "python {input.script} --arch {wildcards.arch} --native {params.native}"
        " --settings {params.settings:q} --ck {params.ck:q}"
        " --cutlass {params.cutlass:q} --output {output} 2>&1 | tee {log}"
