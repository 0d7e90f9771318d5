# Stage 11: the directory that a client loads.
#
# update(): what was published stays until the new models replace it.
MODELS = f"results/models/{SETTINGS.published_as('{arch}')}"
MODELS_PAGE = source("workflow/templates/models.md.j2")
COMPILED_BY = registration.describe_toolchain(SETTINGS.compile, ROOTS)


rule publish:
    input:
        record=RECORD_OF_RUN,
        training=each_operation(*rules.model.output),
        serving=each_operation(*rules.serving.output),
        evaluation=each_operation("results/evaluation/{arch}/{operation}.json"),
        layers=each_operation("results/evaluation/{arch}/{operation}.parquet"),
        made_from=made_from,
        tables=tables_read,
        summary=summarized(with_models=True),
        template=MODELS_PAGE,
    output:
        models=update(directory(MODELS)),
    log:
        "logs/{arch}/publish.log",
    localrule: True
    conda:
        "../../envs/tileseer.yaml"
    params:
        settings=json.dumps(PORTABLE),
        code=code("publish"),
        tables=lambda wildcards: tables(*made_from(wildcards), *tables_read(wildcards), MODELS_PAGE),
        training=folders_of("training"),
        serving=folders_of("serving"),
        operations=operations_of,
        workflow=lambda wildcards: HERE,
        compiler=json.dumps(COMPILED_BY, sort_keys=True),
    shell:
        f"python {SCRIPTS}/publish.py {CHECKED}"
        " --arch {wildcards.arch} --operations {params.operations}"
        " --training {params.training} --serving {params.serving} --evaluation {input.evaluation}"
        " --made-from {input.made_from} --files {input.tables:q} --template {input.template:q} --compiler {params.compiler:q}"
        " --workflow {params.workflow:q} --settings {params.settings:q}"
        " --models {output.models} > {log} 2>&1"


if MODELS != "results/models/{arch}":

    # So that a request for the models themselves gets an answer.
    rule not_of_a_trial:
        input:
            models_of_trial,
        output:
            directory("results/models/{arch}"),
