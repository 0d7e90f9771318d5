# What is trained on and what is held out: the same problems for every arch.
PROBLEM_TABLES = [
    SETTINGS.problems.networks,
    *SETTINGS.problems.training,
    SETTINGS.problems.validation,
]


rule problems:
    input:
        tables=[local(path) for path in PROBLEM_TABLES],
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
        ndims=SETTINGS.configs.ndims,
    shell:
        f"python {SCRIPTS}/problems.py"
        " --operation {wildcards.operation} --ndims {params.ndims}"
        " --settings {params.settings:q} --problems {output.problems} --uses {output.uses} > {log} 2>&1"
