# Stage 10: how good the picks are that ship, on layers of real networks that no model has seen.
rule evaluation:
    input:
        record=RECORD_OF_RUN,
        dataset=dataset_of,
        training=rules.model.output,
        serving=rules.serving.output,
        uses=network_uses,
        library_times=library_times,
        coefficients=COEFFICIENTS,
        learner=LEARNER_FILE,
    output:
        evaluation="results/evaluation/{arch}/{operation}.json",
        layers="results/evaluation/{arch}/{operation}.parquet",
    log:
        "logs/{arch}/{operation}/evaluation.log",
    conda:
        "../../envs/tileseer.yaml"
    threads: 1
    params:
        code=code("evaluation"),
        tables=lambda wildcards: tables(*dataset_of(wildcards), *library_times(wildcards), COEFFICIENTS, *LEARNER_FILE),
        dataset=dataset_folders("dataset"),
        training=folders_of("training"),
        serving=folders_of("serving"),
    shell:
        f"python {SCRIPTS}/evaluation.py {CHECKED}"
        " --arch {wildcards.arch} --operation {wildcards.operation}"
        " --dataset {params.dataset:q} --training {params.training} --serving {params.serving} --uses {input.uses}"
        " --library-times {input.library_times:q} --coefficients {input.coefficients:q}"
        " --evaluation {output.evaluation} --layers {output.layers} --threads {threads} > {log} 2>&1"
