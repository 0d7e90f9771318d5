# Stage 8: train one ranking model an operation.
from tileseer.model import model_files

TRAINING = "results/training/{arch}/{operation}"
TRAINED = [f"{TRAINING}/{name}" for name in model_files.TRAINING_FILES]
LOADED = (model_files.MODEL, model_files.SPEC, model_files.CANDIDATES)
# A prior is a file of the user's, from another run: only its content counts.
PRIOR = SETTINGS.model.parameters.prior_folder
PRIOR = [f"{PRIOR}/{name}" for name in LOADED if PRIOR]


rule model:
    input:
        **stage("model", ["model"], DEVICE, PRIOR),
        dataset="results/datasets/{arch}/{operation}.parquet",
        recorded=lambda wildcards: expand(
            "results/datasets/{other}/{operation}.parquet",
            other=recorded_elsewhere(**wildcards),
            operation=wildcards.operation,
        ),
        other_dtype=lambda wildcards: expand(
            "results/datasets/{arch}/{other}.parquet",
            arch=wildcards.arch,
            other=other_dtype(**wildcards),
        ),
    output:
        TRAINED,
    log:
        "logs/{arch}/{operation}/model.log",
    benchmark:
        "logs/{arch}/{operation}/model.tsv"
    conda:
        "../../envs/tileseer.yaml"
    threads: THREADS
    params:
        **command("model", product=product, output=TRAINING),
    message:
        "Train the model of {wildcards.operation} for {wildcards.arch}"
    shell:
        run("--threads {threads}")
