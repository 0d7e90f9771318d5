# Stage 11: the directory that a client loads.
import json

COMPILED_BY = registry.describe(SETTINGS.compile, TREES)


def made_from(wildcards):
    """Tables that the models were made from, those of one operation after the other; a recorded arch has datasets alone."""
    tables = ["results/datasets/{arch}/{operation}.parquet"]
    if wildcards.arch not in RECORDINGS:
        tables += [
            "results/problems/{operation}.parquet",
            "results/configs/{arch}/{operation}.parquet",
        ]
    return [
        table.format(arch=wildcards.arch, operation=each)
        for each in SETTINGS.operations
        for table in tables
    ]


def files_read(wildcards):
    """Tables that the stages of an arch read and none of them made; no scripts, which are code."""
    replaying = "recorded problems model baseline validation serving".split()
    recorded = wildcards.arch in RECORDINGS
    found = {
        path
        for name, paths in READS.items()
        if name in replaying or not recorded
        for path in paths
    }
    found = {path for path in found if not path.startswith(source("workflow") + "/")}
    if recorded:
        found |= {
            path
            for each in SETTINGS.operations
            for path in recording_of(wildcards.arch, each)
        }
    return sorted(found)


rule publish:
    input:
        each_operation(*TRAINED, *SERVED),
        **stage("publish", [*PORTABLE]),
        validation=each_operation("results/validation/{arch}/{operation}.json"),
        made_from=made_from,
    output:
        models=directory("results/models/{arch}"),
    log:
        "logs/{arch}/publish.log",
    benchmark:
        "logs/{arch}/publish.tsv"
    localrule: True
    conda:
        "../../envs/tileseer.yaml"
    params:
        **command(
            "publish",
            training=each_operation(TRAINING),
            serving=each_operation(SERVING),
            operations=SETTINGS.operations,
            files=files_read,
            workflow=HERE,
            compiler=json.dumps(COMPILED_BY, sort_keys=True),
        ),
    message:
        "Publish the models of {wildcards.arch}"
    shell:
        run()
