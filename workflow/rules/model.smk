# Stage 8: train one ranking model per operation.
import inspect

from tileseer.learn.learner import learner_class

# A prior is a file of the user's, from another run: only its content counts.
PRIOR_FILES = [outside(path) for path in SETTINGS.model.prior_files]
LEARNER = ask(learner_class, SETTINGS.model.learner)
# The code of a stranger is no code of ours.
LEARNER_FILE = [] if LEARNER.__module__.startswith("tileseer.") else [outside(inspect.getfile(LEARNER))]


rule model:
    input:
        record=RECORD_OF_RUN,
        dataset=dataset_of,
        # The model learns from this one too.
        other_dtype=other_dtype,
        hardware=HARDWARE,
        coefficients=COEFFICIENTS,
        prior=PRIOR_FILES,
        learner=LEARNER_FILE,
    output:
        learnt=expand("results/training/{{arch}}/{{operation}}/{name}", name=LEARNER.scorer.FILES),
        spec="results/training/{arch}/{operation}/feature_spec.json",
        manifest="results/training/{arch}/{operation}/train_manifest.json",
        candidates="results/training/{arch}/{operation}/candidates.parquet",
        hardware="results/training/{arch}/{operation}/hardware.json",
    log:
        "logs/{arch}/{operation}/model.log",
    conda:
        "../../envs/tileseer.yaml"
    # The operations learn side by side; --set-threads model=4 gives each more.
    threads: 1
    params:
        settings=settings("model"),
        code=code("model"),
        tables=lambda wildcards: tables(
            *dataset_of(wildcards), *other_dtype(wildcards), HARDWARE, COEFFICIENTS, *PRIOR_FILES, *LEARNER_FILE
        ),
        dataset=dataset_folders("dataset"),
        other_dtype=dataset_folders("other_dtype"),
        product=product,
        folder=subpath(output.spec, parent=True),
    shell:
        f"python {SCRIPTS}/model.py {CHECKED}"
        " --arch {wildcards.arch} --operation {wildcards.operation}"
        " --dataset {params.dataset:q} --other-dtype {params.other_dtype:q}"
        " --hardware {input.hardware:q} --product {params.product:q} --coefficients {input.coefficients:q}"
        " --settings {params.settings:q} --output {params.folder} --threads {threads} > {log} 2>&1"
