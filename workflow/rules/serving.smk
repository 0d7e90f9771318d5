# Stage 10: what a dispatcher runs of a model: a small model, a C++ header, known problems and a kernel list.
SERVED = {
    "model": "results/serving/{arch}/{op}/served_model.lgbm",
    "header": "results/serving/{arch}/{op}/selector.hpp",
    "known": "results/serving/{arch}/{op}/known_problems.parquet",
    "kernels": "results/serving/{arch}/{op}/kernels.json",
    "estimates": "results/serving/{arch}/{op}/resource_estimates.json",
    "figures": "results/serving/{arch}/{op}/serving.json",
}


checkpoint serving:
    input:
        script=source("workflow/scripts/serving.py"),
        template=source("workflow/templates/serving/selector.hpp.j2"),
        api=source("config/ck_api.yaml"),
        coefficients=source("config/simulated_device.yaml"),
        layers=SETTINGS.problems.validation,
        trained=[ancient(path) for path in TRAINED.values()],
        dataset=ancient("results/datasets/{arch}/{op}.parquet"),
    output:
        **SERVED,
    log:
        "logs/{arch}/{op}/serving.log",
    conda:
        "../../envs/tileseer.yaml"
    threads: 1
    params:
        modules=modules("serving"),
        made=content("results/datasets/{arch}/{op}.parquet", *TRAINED.values()),
        folder=lambda wildcards, output: os.path.dirname(output.figures),
        training=lambda wildcards, input: os.path.dirname(input.trained[0]),
        settings=SETTINGS.serving.to_json(),
    shell:
        "python {input.script} --dataset {input.dataset} --training {params.training} --template {input.template}"
        " --api {input.api} --coefficients {input.coefficients} --settings {params.settings:q} --threads {threads}"
        " --layers {input.layers:q} --output {params.folder} 2>&1 | tee {log}"
