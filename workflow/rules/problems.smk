# What is trained on and what is held out: the same problems for every arch.
rule problems:
    input:
        **stage(
            "problems",
            ["problems"],
            reads=[
                SETTINGS.problems.networks,
                *SETTINGS.problems.training,
                SETTINGS.problems.validation,
            ],
        ),
    output:
        problems="results/problems/{operation}.parquet",
        uses="results/problems/{operation}.uses.parquet",
    log:
        "logs/problems/{operation}.log",
    benchmark:
        "logs/problems/{operation}.tsv"
    localrule: True
    conda:
        "../../envs/tileseer.yaml"
    params:
        **command("problems", ndims=list(SETTINGS.configs.ndims)),
    message:
        "Choose the problems of {wildcards.operation}"
    shell:
        run()
