# Stage 11: the directory that a client loads.
import json


rule publish:
    input:
        script=source("workflow/scripts/publish.py"),
        trained=each_operation(*TRAINED.values()),
        served=each_operation(*SERVED.values()),
        validation=each_operation("results/validation/{arch}/{op}.json"),
        tables=lambda wildcards: [ancient(path) for path in all_made_from(wildcards)],
    output:
        directory("results/models/{arch}"),
    log:
        "logs/{arch}/publish.log",
    localrule: True
    conda:
        "../../envs/tileseer.yaml"
    params:
        modules=modules("publish"),
        made=each_operation_content(
            "results/validation/{arch}/{op}.json",
            *TRAINED.values(),
            *SERVED.values(),
        ),
        tables=lambda wildcards: list(map(Content, all_made_from(wildcards))),
        made_from=lambda wildcards: " ".join(
            f"--made-from {op} {' '.join(made_from(wildcards.arch, op))}"
            for op in SETTINGS.operations
        ),
        # Their paths alone, as parameters; white space in one of them is no reason to publish again.
        files=files_read,
        config=json.dumps(SETTINGS.portable(), sort_keys=True),
        compiler=lambda wildcards: json.dumps(
            registry.describe(
                SETTINGS.compile, registry.Trees(SETTINGS.ck, SETTINGS.cutlass)
            ),
            sort_keys=True,
        ),
        workflow=HERE,
        training=[f"results/training/{{arch}}/{op}" for op in SETTINGS.operations],
        serving=[f"results/serving/{{arch}}/{op}" for op in SETTINGS.operations],
    shell:
        "python {input.script} --training {params.training} --validation {input.validation}"
        " --serving {params.serving} --arch {wildcards.arch} {params.made_from} --config {params.config:q}"
        " --compiler {params.compiler:q} --workflow {params.workflow:q} --files {params.files:q} --output {output} 2>&1 | tee {log}"
