# What is trained on and what is held out: the same problems for every arch.
PROBLEM_TABLES = [
    outside(path) for path in (SETTINGS.problems.networks, *SETTINGS.problems.training, SETTINGS.problems.validation)
]


rule problems:
    input:
        record=RECORD_OF_RUN,
        tables=PROBLEM_TABLES,
    output:
        problems="results/problems/{operation}.parquet",
        uses="results/problems/{operation}.uses.parquet",
    log:
        "logs/problems/{operation}.log",
    localrule: True
    conda:
        "../../envs/tileseer.yaml"
    params:
        settings=settings("problems"),
        code=code("problems"),
        tables=tables(*PROBLEM_TABLES),
        ndims=SETTINGS.configs.ndims,
    shell:
        f"python {SCRIPTS}/problems.py {CHECKED}"
        " --operation {wildcards.operation} --ndims {params.ndims}"
        " --settings {params.settings:q} --problems {output.problems} --uses {output.uses} > {log} 2>&1"
