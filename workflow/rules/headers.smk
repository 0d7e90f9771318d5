# Stage 3: emit the C++ of a chunk's kernels into one bundle.
from tileseer.libraries.registry import installed

EMITTED_WITH = [
    outside(path)
    for library in installed()
    if library.emitter
    for path in library.emitter.template_files(Path(TEMPLATES))
]


rule headers:
    input:
        record=RECORD_OF_RUN,
        configs="results/configs/{arch}/{operation}.parquet",
        api=API,
        templates=EMITTED_WITH,
    output:
        bundle="results/headers/{arch}/{operation}/{chunk}.tar",
    log:
        "logs/{arch}/{operation}/headers/{chunk}.log",
    conda:
        "../../envs/tileseer.yaml"
    params:
        code=code("headers"),
        tables=tables(API, *EMITTED_WITH),
        templates=lambda wildcards: TEMPLATES,
        level=CK_LEVEL,
    shell:
        f"python {SCRIPTS}/headers.py {CHECKED}"
        " --arch {wildcards.arch} --operation {wildcards.operation} --chunk {wildcards.chunk}"
        " --configs {input.configs} --api {input.api:q} --level {params.level}"
        " --templates {params.templates:q} --bundle {output.bundle} > {log} 2>&1"
