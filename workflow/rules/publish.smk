# Stage 11: the directory that a client loads.
import json

COMPILED_BY = registry.describe(SETTINGS.compile, ROOTS)


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
            operations=operations_of,
            files=files_read,
            history="results/history.jsonl",
            workflow=HERE,
            compiler=json.dumps(COMPILED_BY, sort_keys=True),
        ),
    message:
        "Publish the models of {wildcards.arch}"
    shell:
        run()
