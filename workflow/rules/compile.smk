# Stage 4: compile a chunk's kernels, or estimate what they would cost.
# Of kernels that a library offers only the measuring driver is compiled, whatever the toolchain.
if LINKED and not COMPILES:
    TOOLCHAIN = registration.driver_compiler(SETTINGS.compile).version

# Launchers become part of what nvcc compiles.
LAUNCHERS = NATIVE_SOURCES if SETTINGS.compile.toolchain == "nvcc" else []


rule compile:
    input:
        record=RECORD_OF_RUN,
        configs="results/configs/{arch}/{operation}.parquet",
        headers="results/headers/{arch}/{operation}/{chunk}.tar",
        hardware=HARDWARE,
        coefficients=COEFFICIENTS,
        native=LAUNCHERS,
    output:
        build="results/build/{arch}/{operation}/{chunk}.parquet",
    log:
        "logs/{arch}/{operation}/compile/{chunk}.log",
    conda:
        "../../envs/tileseer.yaml"
    resources:
        mem_mb=registration.memory_mib(SETTINGS.compile),
    params:
        settings=settings("compile"),
        code=code("compile"),
        tables=tables(HARDWARE, COEFFICIENTS, *LAUNCHERS),
        toolchain=TOOLCHAIN,
        machine=machine,
        product=product,
        native=lambda wildcards: NATIVE,
    shell:
        f"python {SCRIPTS}/compile.py {CHECKED}"
        " --arch {wildcards.arch} --operation {wildcards.operation} --chunk {wildcards.chunk}"
        " --configs {input.configs} --headers {input.headers}"
        " --hardware {input.hardware:q} --product {params.product:q} --coefficients {input.coefficients:q}"
        " --native {params.native:q} --settings {params.settings:q} {params.machine:q}"
        " --build {output.build} > {log} 2>&1"


# With a compiler: which kernels have the same machine code, so that one of them is measured for all.
rule aliases:
    input:
        record=RECORD_OF_RUN,
        build=each_chunk("results/build/{arch}/{operation}/{chunk}.parquet"),
        support=each_chunk("results/support/{arch}/{operation}/{chunk}.parquet"),
    output:
        aliases="results/aliases/{arch}/{operation}.parquet",
    log:
        "logs/{arch}/{operation}/aliases.log",
    conda:
        "../../envs/tileseer.yaml"
    params:
        code=code("aliases"),
    shell:
        f"python {SCRIPTS}/aliases.py {CHECKED}"
        " --arch {wildcards.arch} --operation {wildcards.operation}"
        " --build {input.build} --support {input.support}"
        " --aliases {output.aliases} > {log} 2>&1"


# For a real or an emulated GPU: the kernels of a chunk as a module, and the driver that runs them.
rule libraries:
    input:
        record=RECORD_OF_RUN,
        headers="results/headers/{arch}/{operation}/{chunk}.tar",
        build="results/build/{arch}/{operation}/{chunk}.parquet",
        native=NATIVE_SOURCES,
    output:
        library="results/libraries/{arch}/{operation}/{chunk}.so",
    log:
        "logs/{arch}/{operation}/libraries/{chunk}.log",
    conda:
        "../../envs/tileseer.yaml"
    resources:
        mem_mb=registration.memory_mib(SETTINGS.compile),
    params:
        settings=settings("libraries"),
        code=code("libraries"),
        tables=tables(*NATIVE_SOURCES),
        toolchain=TOOLCHAIN,
        machine=machine,
        native=lambda wildcards: NATIVE,
        device=DEVICE,
    shell:
        f"python {SCRIPTS}/libraries.py {CHECKED}"
        " --arch {wildcards.arch} --operation {wildcards.operation}"
        " --chunk {wildcards.chunk} --headers {input.headers} --build {input.build} --native {params.native:q}"
        " --device {params.device} --settings {params.settings:q} {params.machine:q} --library {output.library} > {log} 2>&1"


rule driver:
    input:
        record=RECORD_OF_RUN,
        native=NATIVE_SOURCES,
    output:
        library="results/libraries/{arch}/driver.so",
    log:
        "logs/{arch}/driver.log",
    conda:
        "../../envs/tileseer.yaml"
    resources:
        mem_mb=registration.memory_mib(SETTINGS.compile),
    params:
        settings=settings("libraries"),
        code=code("libraries"),
        tables=tables(*NATIVE_SOURCES),
        toolchain=TOOLCHAIN,
        machine=machine,
        native=lambda wildcards: NATIVE,
        device=DEVICE,
    shell:
        f"python {SCRIPTS}/libraries.py {CHECKED}"
        " --arch {wildcards.arch} --native {params.native:q} --device {params.device}"
        " --settings {params.settings:q} {params.machine:q} --library {output.library} > {log} 2>&1"


# What follows has these as inputs where a configuration makes them.
ALIASES = rules.aliases.output.aliases if COMPILES else []
DRIVER = rules.driver.output.library if LINKED else []
MODULE = rules.libraries.output.library if LINKED and COMPILES else []
