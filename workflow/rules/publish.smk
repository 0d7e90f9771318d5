# Stage 11: the directory that a client loads.
#
# update(): what was published stays until the new models replace it.
import json

COMPILED_BY = registry.describe_toolchain(SETTINGS.compile, ROOTS)


rule publish:
    input:
        training=each_operation(*rules.model.output),
        serving=each_operation(*rules.serving.output),
        validation=each_operation("results/validation/{arch}/{operation}.json"),
        made_from=made_from,
        tables=tables_read,
        template=source("workflow/templates/models.md.j2"),
        # None: it only refuses to replace models of a GPU's times by others.
        replaced=refuse_replacement,
        settings=settings_of_publish,
    output:
        models=update(directory("results/models/{arch}")),
    log:
        "logs/{arch}/publish.log",
    localrule: True
    conda:
        "../../envs/tileseer.yaml"
    params:
        training=folders_of("training"),
        serving=folders_of("serving"),
        operations=operations_of,
        history="results/history.jsonl",
        workflow=HERE,
        compiler=json.dumps(COMPILED_BY, sort_keys=True),
    message:
        "Publish the models of {wildcards.arch}"
    shell:
        'python "$SCRIPTS"/publish.py --arch {wildcards.arch} --operations {params.operations}'
        " --training {params.training} --serving {params.serving} --validation {input.validation}"
        " --made-from {input.made_from} --files {input.tables:q} --template {input.template:q} --compiler {params.compiler:q}"
        " --workflow {params.workflow:q} --history {params.history} --settings {input.settings}"
        " --models {output.models} 2>&1 | tee {log}"
