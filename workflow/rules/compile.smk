# Stage 4: compile a chunk's kernels, or estimate what they would cost.
from tilewright.toolchain import registry
from tilewright.toolchain.memory import memory_mib

# What compiled kernels depend on outside of this folder. Without a compiler nothing could start: it is said here.
try:
    TOOLCHAIN = registry.fingerprint(SETTINGS.compile, SETTINGS.ck)
except UserError as error:
    raise WorkflowError(str(error)) from None


checkpoint compile:
    input:
        modules=modules("compile"),
        script=source("workflow/scripts/compile.py"),
        hardware=SETTINGS.hardware,
        coefficients=source("config/simulated_device.yaml"),
        api=source("config/ck_api.yaml"),
        configs=ancient("results/configs/{arch}/{op}.parquet"),
        headers=ancient("results/headers/{arch}/{op}/{chunk}.tar"),
    output:
        table="results/build/{arch}/{op}/{chunk}.parquet",
        costs="results/build/{arch}/{op}/{chunk}.costs.parquet",
    log:
        "logs/{arch}/{op}/compile/{chunk}.log",
    conda:
        "../../envs/tilewright.yaml"
    resources:
        mem_mb=memory_mib(SETTINGS.compile),
    params:
        kernels=chunk_content,
        headers=content("results/headers/{arch}/{op}/{chunk}.tar"),
        product=product,
        settings=SETTINGS.compile.to_json(),
        ck=SETTINGS.ck.to_json(),
        level=CK_LEVEL,
        toolchain=TOOLCHAIN,
    shell:
        "python {input.script} --arch {wildcards.arch} --configs {input.configs} --chunk {wildcards.chunk}"
        " --headers {input.headers} --hardware {input.hardware:q} --product={params.product}"
        " --coefficients {input.coefficients} --settings {params.settings:q} --ck {params.ck:q} --api {input.api}"
        " --level {params.level} --output {output.table}"
        " --costs {output.costs} 2>&1 | tee {log}"
