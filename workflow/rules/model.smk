# Stage 8: train one ranking model an operation.
TRAINED = {
    "booster": "results/training/{arch}/{op}/model_tflops.lgbm",
    "spec": "results/training/{arch}/{op}/feature_spec.json",
    "manifest": "results/training/{arch}/{op}/train_manifest.json",
    "cv": "results/training/{arch}/{op}/cv_metrics_tflops.json",
    "importances": "results/training/{arch}/{op}/feature_importances_tflops.json",
    "candidates": "results/training/{arch}/{op}/candidates.parquet",
    "hardware": "results/training/{arch}/{op}/hardware.json",
    "out_of_fold": "results/training/{arch}/{op}/out_of_fold.parquet",
}
# A prior is a file of the user's, from another run: only its content counts.
PRIOR = [os.path.basename(TRAINED[name]) for name in ("booster", "spec", "candidates")]
PRIOR = PRIOR if SETTINGS.model.prior else []


checkpoint model:
    input:
        script=source("workflow/scripts/model.py"),
        hardware=SETTINGS.hardware,
        dataset=ancient("results/datasets/{arch}/{op}.parquet"),
    output:
        **TRAINED,
    log:
        "logs/{arch}/{op}/model.log",
    conda:
        "../../envs/tileseer.yaml"
    threads: 1
    params:
        modules=modules("model"),
        made=content("results/datasets/{arch}/{op}.parquet"),
        folder=lambda wildcards, output: os.path.dirname(output.spec),
        prior=[digest(f"{SETTINGS.model.prior}/{name}") for name in PRIOR],
        product=product,
        settings=SETTINGS.model.to_json(),
    shell:
        "python {input.script} --dataset {input.dataset} --hardware {input.hardware:q} --product={params.product}"
        " --settings {params.settings:q} --threads {threads} --output {params.folder} 2>&1 | tee {log}"
