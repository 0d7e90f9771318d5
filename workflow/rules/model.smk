# Stage 8: train one ranking model an operation.
TRAINING = "results/training/{arch}/{operation}"
BOOSTER, SPEC, CANDIDATES = (
    "model_tflops.lgbm",
    "feature_spec.json",
    "candidates.parquet",
)
SHOWN = [
    "train_manifest.json",
    "cv_metrics_tflops.json",
    "feature_importances_tflops.json",
    "hardware.json",
]
TRAINED = [
    f"{TRAINING}/{name}"
    for name in (BOOSTER, SPEC, CANDIDATES, *SHOWN, "out_of_fold.parquet")
]
# A prior is a file of the user's, from another run: only its content counts.
PRIOR = SETTINGS.model.prior and [
    f"{SETTINGS.model.prior}/{name}" for name in (BOOSTER, SPEC, CANDIDATES)
]


rule model:
    input:
        **stage("model", ["model"], HARDWARE, PRIOR or []),
        dataset="results/datasets/{arch}/{operation}.parquet",
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
