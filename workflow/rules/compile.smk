# Stage 4: compile a chunk's kernels, or estimate what they would cost.
from tileseer.compile import registry
from tileseer.compile.registry import memory_mib

NATIVE = source("workflow/native")
NATIVE_SOURCES = [path.as_posix() for path in sorted(Path(NATIVE).glob("*.[ch]*"))]

# What compiled kernels depend on outside of this folder. Without a compiler nothing could start: it is said here.
try:
    TOOLCHAIN = registry.fingerprint(
        SETTINGS.compile, registry.Trees(SETTINGS.ck, SETTINGS.cutlass)
    )
except UserError as error:
    raise WorkflowError(str(error)) from None


checkpoint compile:
    input:
        script=source("workflow/scripts/compile.py"),
        hardware=SETTINGS.hardware,
        coefficients=source("config/simulated_device.yaml"),
        # The launchers become part of the objects; of nothing that is only estimated.
        native=NATIVE_SOURCES if SETTINGS.compile.toolchain == "nvcc" else [],
        configs=ancient("results/configs/{arch}/{op}.parquet"),
        headers=made_by(
            "headers", "results/headers/{arch}/{op}/{chunk}.tar", user="compile"
        ),
    output:
        table="results/build/{arch}/{op}/{chunk}.parquet",
        costs="results/build/{arch}/{op}/{chunk}.costs.parquet",
    log:
        "logs/{arch}/{op}/compile/{chunk}.log",
    conda:
        "../../envs/tileseer.yaml"
    resources:
        mem_mb=memory_mib(SETTINGS.compile),
    params:
        modules=modules("compile"),
        kernels=chunk_content,
        headers=content("results/headers/{arch}/{op}/{chunk}.tar"),
        product=product,
        settings=SETTINGS.compile.to_json(),
        ck=SETTINGS.ck.to_json(),
        cutlass=SETTINGS.cutlass.to_json(),
        native=lambda wildcards: NATIVE,
        toolchain=TOOLCHAIN,
    shell:
        "python {input.script} --arch {wildcards.arch} --configs {input.configs} --chunk {wildcards.chunk}"
        " --headers {input.headers} --hardware {input.hardware:q} --product={params.product}"
        " --coefficients {input.coefficients} --settings {params.settings:q} --ck {params.ck:q}"
        " --cutlass {params.cutlass:q} --native {params.native} --output {output.table}"
        " --costs {output.costs} 2>&1 | tee {log}"
