# Stage 3: emit the C++ of a chunk's kernels into one bundle.
from tileseer.families.registry import FAMILIES

TEMPLATES = source("workflow/templates")
TEMPLATES_CONTENT = digest_of_all(
    path.as_posix()
    for family in FAMILIES
    for path in family.part("emit").template_files(Path(TEMPLATES))
)


checkpoint headers:
    input:
        script=source("workflow/scripts/headers.py"),
        api=source("config/ck_api.yaml"),
        configs=ancient("results/configs/{arch}/{op}.parquet"),
    output:
        "results/headers/{arch}/{op}/{chunk}.tar",
    log:
        "logs/{arch}/{op}/headers/{chunk}.log",
    conda:
        "../../envs/tileseer.yaml"
    params:
        modules=modules("headers"),
        kernels=chunk_content,
        templates=TEMPLATES,
        templates_content=TEMPLATES_CONTENT,
        level=CK_LEVEL,
    shell:
        "python {input.script} --configs {input.configs} --chunk {wildcards.chunk} --arch {wildcards.arch}"
        " --templates {params.templates} --api {input.api}"
        " --level {params.level} --output {output} 2>&1 | tee {log}"


# For people and their builds: all C++ of an operation in a folder of its own, registration included.
rule sources:
    input:
        script=source("workflow/scripts/sources.py"),
        api=source("config/ck_api.yaml"),
        configs=ancient("results/configs/{arch}/{op}.parquet"),
        bundles=each_chunk("results/headers/{arch}/{op}/{chunk}.tar"),
    output:
        directory("results/sources/{arch}/{op}"),
    log:
        "logs/{arch}/{op}/sources.log",
    conda:
        "../../envs/tileseer.yaml"
    params:
        modules=modules("sources"),
        made=each_content("results/headers/{arch}/{op}/{chunk}.tar"),
        templates=TEMPLATES,
        templates_content=TEMPLATES_CONTENT,
        level=CK_LEVEL,
    shell:
        "python {input.script} --arch {wildcards.arch} --configs {input.configs} --bundles {input.bundles}"
        " --templates {params.templates} --api {input.api}"
        " --level {params.level} --output {output} 2>&1 | tee {log}"
