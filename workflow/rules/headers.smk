# Stage 3: emit the C++ of a chunk's kernels into one bundle.
TEMPLATES = sorted(
    path.as_posix()
    for path in Path("workflow/templates").rglob("*.j2")
    if path.name != "arch_specs.py.j2"
)


checkpoint headers:
    input:
        modules=modules("headers"),
        script="workflow/scripts/headers.py",
        templates=TEMPLATES,
        api="config/ck_api.yaml",
        configs=ancient("results/configs/{arch}/{op}.parquet"),
    output:
        "results/headers/{arch}/{op}/{chunk}.tar",
    log:
        "logs/{arch}/{op}/headers/{chunk}.log",
    conda:
        "../../envs/tilewright.yaml"
    params:
        kernels=chunk_content,
    shell:
        "python {input.script} --configs {input.configs} --chunk {wildcards.chunk} --arch {wildcards.arch}"
        " --templates workflow/templates --api {input.api} --output {output} 2>&1 | tee {log}"
