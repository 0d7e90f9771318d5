# Stage 9: what a dispatcher runs of a model: a C++ header, known problems and a kernel list.
SELECTOR = source("workflow/templates/serving/selector.hpp.j2")


rule serving:
    input:
        record=RECORD_OF_RUN,
        dataset=dataset_of,
        training=rules.model.output,
        template=SELECTOR,
        api=API,
        coefficients=COEFFICIENTS,
    output:
        header="results/serving/{arch}/{operation}/selector.hpp",
        known="results/serving/{arch}/{operation}/known_problems.parquet",
        golden="results/serving/{arch}/{operation}/golden.parquet",
        kernels="results/serving/{arch}/{operation}/kernels.json",
        estimates="results/serving/{arch}/{operation}/resource_estimates.json",
    log:
        "logs/{arch}/{operation}/serving.log",
    conda:
        "../../envs/tileseer.yaml"
    threads: 1
    params:
        code=code("serving"),
        tables=lambda wildcards: tables(*dataset_of(wildcards), SELECTOR, API, COEFFICIENTS),
        dataset=dataset_folders("dataset"),
        training=folders_of("training"),
        folder=subpath(output.header, parent=True),
    shell:
        f"python {SCRIPTS}/serving.py {CHECKED}"
        " --arch {wildcards.arch} --operation {wildcards.operation}"
        " --dataset {params.dataset:q} --training {params.training}"
        " --template {input.template:q} --api {input.api:q}"
        " --coefficients {input.coefficients:q}"
        " --output {params.folder} --threads {threads} > {log} 2>&1"
