# Stage 10: what a dispatcher runs of a model: a C++ header, arrays for Python, known problems and a kernel list.
SERVING = "results/serving/{arch}/{operation}"
SERVED = [f"{SERVING}/{name}" for name in model_files.SERVING_FILES]


rule serving:
    input:
        TRAINED,
        **stage(
            "serving",
            ["serving"],
            {
                "template": source("workflow/templates/serving/selector.hpp.j2"),
                "api": API,
                "coefficients": COEFFICIENTS,
                "layers": SETTINGS.problems.validation,
            },
        ),
        dataset="results/datasets/{arch}/{operation}.parquet",
    output:
        SERVED,
    log:
        "logs/{arch}/{operation}/serving.log",
    benchmark:
        "logs/{arch}/{operation}/serving.tsv"
    conda:
        "../../envs/tileseer.yaml"
    threads: THREADS
    params:
        **command("serving", training=TRAINING, output=SERVING),
    message:
        "Make what serves the model of {wildcards.operation} for {wildcards.arch}"
    shell:
        run("--threads {threads}")
