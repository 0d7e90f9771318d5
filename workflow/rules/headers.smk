# Stage 3: emit the C++ of a chunk's kernels into one bundle.
from tileseer.families.registry import FAMILIES

EMITTED_WITH = [
    path.as_posix()
    for family in FAMILIES
    if family.has("emit")
    for path in family.part("emit").template_files(Path(TEMPLATES))
]


rule headers:
    input:
        **stage("headers", tables={"api": API}, reads=EMITTED_WITH),
        configs="results/configs/{arch}/{operation}.parquet",
        plan="results/configs/{arch}/{operation}.plan.tsv",
    output:
        bundle="results/headers/{arch}/{operation}/{chunk}.tar",
    log:
        "logs/{arch}/{operation}/headers/{chunk}.log",
    benchmark:
        "logs/{arch}/{operation}/headers/{chunk}.tsv"
    conda:
        "../../envs/tileseer.yaml"
    params:
        **command("headers", templates=TEMPLATES, level=CK_LEVEL),
    message:
        "Emit the C++ of {wildcards.operation} for {wildcards.arch}, chunk {wildcards.chunk}"
    shell:
        run()


# For people and their builds: all C++ of an operation in a folder of its own, registration included.
rule sources:
    input:
        **stage("sources", tables={"api": API}, reads=EMITTED_WITH),
        configs="results/configs/{arch}/{operation}.parquet",
        bundles=each_chunk("results/headers/{arch}/{operation}/{chunk}.tar"),
    output:
        folder=directory("results/sources/{arch}/{operation}"),
    log:
        "logs/{arch}/{operation}/sources.log",
    benchmark:
        "logs/{arch}/{operation}/sources.tsv"
    conda:
        "../../envs/tileseer.yaml"
    params:
        **command("sources", templates=TEMPLATES, level=CK_LEVEL),
    message:
        "Unpack the C++ of {wildcards.operation} for {wildcards.arch}"
    shell:
        run()
