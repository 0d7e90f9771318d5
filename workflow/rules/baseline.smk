# A baseline for validation: the reference's trainer on the rows of the model stage (validation.studies).
BASELINE = "results/baseline/{arch}/{operation}"
COMPARED_WITH = [f"{BASELINE}/{name}" for name in (model_files.MODEL, model_files.SPEC)]


rule baseline:
    input:
        **stage("baseline", ["model"], HARDWARE),
        dataset="results/datasets/{arch}/{operation}.parquet",
    output:
        COMPARED_WITH,
    log:
        "logs/{arch}/{operation}/baseline.log",
    benchmark:
        "logs/{arch}/{operation}/baseline.tsv"
    conda:
        "../../envs/tileseer.yaml"
    threads: THREADS
    params:
        **command("baseline", product=product, output=BASELINE),
    message:
        "Train the reference's model of {wildcards.operation} for {wildcards.arch}"
    shell:
        run("--threads {threads}")
