# Stage 9: score each model on problems of real networks that it has never seen.
COMPARED = "reference_trainer" in SETTINGS.validation.studies


rule validation:
    input:
        TRAINED,
        COMPARED_WITH if COMPARED else [],
        **stage(
            "validation",
            ["validation", "benchmark"],
            {"layers": SETTINGS.problems.validation, "coefficients": COEFFICIENTS},
        ),
        chosen=CHOSEN,
        dataset="results/datasets/{arch}/{operation}.parquet",
        uses="results/problems/{operation}.uses.parquet",
    output:
        validation="results/validation/{arch}/{operation}.json",
    log:
        "logs/{arch}/{operation}/validation.log",
    benchmark:
        "logs/{arch}/{operation}/validation.tsv"
    conda:
        "../../envs/tileseer.yaml"
    threads: THREADS
    params:
        **command(
            "validation", training=TRAINING, baseline=[BASELINE] if COMPARED else []
        ),
    message:
        "Validate the model of {wildcards.operation} for {wildcards.arch}"
    shell:
        run("--threads {threads}")
