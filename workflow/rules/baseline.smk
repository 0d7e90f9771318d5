# A baseline for validation: the reference's trainer on the rows of the model stage (validation.studies).
rule baseline:
    input:
        dataset="results/datasets/{arch}/{operation}.parquet",
        hardware=HARDWARE,
        settings=stage_file("baseline", ["model"]),
    output:
        model="results/baseline/{arch}/{operation}/model_tflops.lgbm",
        spec="results/baseline/{arch}/{operation}/feature_spec.json",
    log:
        "logs/{arch}/{operation}/baseline.log",
    conda:
        "../../envs/tileseer.yaml"
    threads: THREADS
    params:
        product=product,
        folder=subpath(output.model, parent=True),
    message:
        "Train the reference's model of {wildcards.operation} for {wildcards.arch}"
    shell:
        'python "$SCRIPTS"/baseline.py --arch {wildcards.arch} --operation {wildcards.operation}'
        " --dataset {input.dataset} --hardware {input.hardware:q} --product {params.product:q}"
        " --settings {input.settings} --output {params.folder} --threads {threads} 2>&1 | tee {log}"
