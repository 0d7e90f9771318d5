# Stage 9: score each model on problems of real networks that it has never seen.
COMPARED = list(REFERENCE.values()) if "reference_trainer" in SETTINGS.validation.studies else []


checkpoint validation:
    input:
        script=source("workflow/scripts/validation.py"),
        layers=SETTINGS.problems.validation,
        coefficients=source("config/simulated_device.yaml"),
        trained=[ancient(path) for path in TRAINED.values()],
        compared=[ancient(path) for path in COMPARED],
        chosen=[ancient(path) for path in CHOSEN],
        dataset=ancient("results/datasets/{arch}/{op}.parquet"),
        uses=ancient("results/problems/{op}.uses.parquet"),
    output:
        "results/validation/{arch}/{op}.json",
    log:
        "logs/{arch}/{op}/validation.log",
    conda:
        "../../envs/tileseer.yaml"
    threads: 1
    params:
        modules=modules("validation"),
        made=content(
            "results/datasets/{arch}/{op}.parquet",
            "results/problems/{op}.uses.parquet",
            *TRAINED.values(),
            *COMPARED,
            *CHOSEN,
        ),
        chosen=chosen,
        settings=SETTINGS.validation.to_json(),
        reference=lambda wildcards, input: (
            f"--reference {os.path.dirname(input.compared[0])}" if COMPARED else ""
        ),
        training=lambda wildcards, input: os.path.dirname(input.trained[0]),
    shell:
        "python {input.script} --dataset {input.dataset} --training {params.training} --threads {threads}"
        " --uses {input.uses} --layers {input.layers:q}"
        " --coefficients {input.coefficients:q} --settings {params.settings:q} {params.reference} {params.chosen}"
        " --output {output} 2>&1 | tee {log}"
