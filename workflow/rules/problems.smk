# What is trained on and what is held out: the same problems for every arch.
checkpoint problems:
    input:
        script=source("workflow/scripts/problems.py"),
        networks=SETTINGS.problems.networks,
        training=SETTINGS.problems.training,
        validation=SETTINGS.problems.validation,
    output:
        problems="results/problems/{op}.parquet",
        uses="results/problems/{op}.uses.parquet",
    log:
        "logs/problems/{op}.log",
    localrule: True
    conda:
        "../../envs/tileseer.yaml"
    params:
        modules=modules("problems"),
        ndims=",".join(str(ndim) for ndim in SETTINGS.configs.ndims),
        settings=SETTINGS.problems.to_json(),
    shell:
        "python {input.script} --operation {wildcards.op} --ndims {params.ndims} --settings {params.settings:q}"
        " --uses {output.uses} --output {output.problems} 2>&1 | tee {log}"
