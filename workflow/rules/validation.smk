# Stage 9: score each model on problems of real networks that it has never seen.
rule validation:
    input:
        dataset=dataset_of,
        training=rules.model.output,
        uses=network_uses,
        layers=VALIDATION_LAYERS,
        coefficients=COEFFICIENTS,
    output:
        validation="results/validation/{arch}/{operation}.json",
    log:
        "logs/{arch}/{operation}/validation.log",
    conda:
        "../../envs/tileseer.yaml"
    threads: 4
    params:
        settings=settings("validation"),
        code=code("validation"),
        dataset=dataset_folders("dataset"),
        training=folders_of("training"),
    message:
        "Validate the model of {wildcards.operation} for {wildcards.arch}"
    shell:
        f"python {SCRIPTS}/validation.py"
        " --arch {wildcards.arch} --operation {wildcards.operation}"
        " --dataset {params.dataset:q} --training {params.training}"
        " --uses {input.uses} --layers {input.layers:q} --coefficients {input.coefficients:q}"
        " --settings {params.settings:q} --validation {output.validation} --threads {threads} > {log} 2>&1"
