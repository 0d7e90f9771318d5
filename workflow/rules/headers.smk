# Stage 3: emit the C++ of a chunk's kernels into one bundle.
from tileseer.kernels.libraries import LIBRARIES

EMITTED_WITH = [
    path.as_posix()
    for library in LIBRARIES
    if library.emitter
    for path in library.emitter.template_files(Path(TEMPLATES))
]


rule headers:
    input:
        configs="results/configs/{arch}/{operation}.parquet",
        plan="results/configs/{arch}/{operation}.plan.tsv",
        api=API,
        templates=[local(path) for path in EMITTED_WITH],
        settings=stage_file("headers", reads=EMITTED_WITH),
    output:
        bundle="results/headers/{arch}/{operation}/{chunk}.tar",
    log:
        "logs/{arch}/{operation}/headers/{chunk}.log",
    conda:
        "../../envs/tileseer.yaml"
    params:
        templates=lambda wildcards: TEMPLATES,
        level=CK_LEVEL,
    message:
        "Emit the C++ of {wildcards.operation} for {wildcards.arch}, chunk {wildcards.chunk}"
    shell:
        'python "$SCRIPTS"/headers.py --arch {wildcards.arch} --operation {wildcards.operation} --chunk {wildcards.chunk}'
        " --configs {input.configs} --plan {input.plan} --api {input.api:q} --level {params.level}"
        " --templates {params.templates:q} --settings {input.settings} --bundle {output.bundle} 2>&1 | tee {log}"


# For people and their builds: all C++ of an operation in a folder of its own, registration included.
rule sources:
    input:
        configs="results/configs/{arch}/{operation}.parquet",
        bundles=each_chunk("results/headers/{arch}/{operation}/{chunk}.tar"),
        api=API,
        templates=[local(path) for path in EMITTED_WITH],
        settings=stage_file("sources", reads=EMITTED_WITH),
    output:
        folder=directory("results/sources/{arch}/{operation}"),
    log:
        "logs/{arch}/{operation}/sources.log",
    conda:
        "../../envs/tileseer.yaml"
    params:
        templates=lambda wildcards: TEMPLATES,
        level=CK_LEVEL,
    message:
        "Unpack the C++ of {wildcards.operation} for {wildcards.arch}"
    shell:
        'python "$SCRIPTS"/sources.py --arch {wildcards.arch} --operation {wildcards.operation}'
        " --configs {input.configs} --bundles {input.bundles} --api {input.api:q} --level {params.level}"
        " --templates {params.templates:q} --settings {input.settings} --folder {output.folder} 2>&1 | tee {log}"
