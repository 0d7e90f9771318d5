# Stage 3: emit the C++ of a chunk's kernels into one bundle.
from tileseer.libraries.registry import installed

EMITTED_WITH = [
    path.as_posix()
    for library in installed()
    if library.emitter
    for path in library.emitter.template_files(Path(TEMPLATES))
]


rule headers:
    input:
        configs="results/configs/{arch}/{operation}.parquet",
        api=API,
        templates=[local(path) for path in EMITTED_WITH],
    output:
        bundle="results/headers/{arch}/{operation}/{chunk}.tar",
    log:
        "logs/{arch}/{operation}/headers/{chunk}.log",
    conda:
        "../../envs/tileseer.yaml"
    params:
        code=code("headers"),
        templates=lambda wildcards: TEMPLATES,
        level=CK_LEVEL,
    shell:
        f"python {SCRIPTS}/headers.py"
        " --arch {wildcards.arch} --operation {wildcards.operation} --chunk {wildcards.chunk}"
        " --configs {input.configs} --api {input.api:q} --level {params.level}"
        " --templates {params.templates:q} --bundle {output.bundle} > {log} 2>&1"
