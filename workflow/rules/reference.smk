# A baseline for validation: the reference's trainer on the rows of the model stage (validation.studies).
REFERENCE = {
    "booster": "results/reference/{arch}/{op}/model_tflops.lgbm",
    "spec": "results/reference/{arch}/{op}/feature_spec.json",
}


checkpoint reference:
    input:
        script=source("workflow/scripts/reference.py"),
        hardware=SETTINGS.hardware,
        dataset=ancient("results/datasets/{arch}/{op}.parquet"),
    output:
        **REFERENCE,
    log:
        "logs/{arch}/{op}/reference.log",
    conda:
        "../../envs/tileseer.yaml"
    threads: 1
    params:
        modules=modules("reference"),
        made=content("results/datasets/{arch}/{op}.parquet"),
        folder=lambda wildcards, output: os.path.dirname(output.spec),
        product=product,
        settings=SETTINGS.model.to_json(),
    shell:
        "python {input.script} --dataset {input.dataset} --hardware {input.hardware:q} --product={params.product}"
        " --settings {params.settings:q} --threads {threads} --output {params.folder} 2>&1 | tee {log}"
