# Stage 2: enumerate the kernels and deal them to chunks.
from tileseer.reference import rule_sets

RULE_SETS = source("config/rule_sets")
try:
    INSTANCES = rule_sets.instances(
        SETTINGS.configs.rule_set, Path(RULE_SETS), SETTINGS.ck.root
    )
except UserError as error:
    raise WorkflowError(str(error)) from None


rule configs:
    input:
        **stage(
            "configs",
            ["configs"],
            reads=rule_sets.files(SETTINGS.configs.rule_set, Path(RULE_SETS)),
            **INSTANCES,
        ),
        arch_specs="results/arch_specs/arch_specs.json",
    output:
        kernels="results/configs/{arch}/{operation}.parquet",
        rejected="results/configs/{arch}/{operation}.rejected.tsv",
        plan="results/configs/{arch}/{operation}.plan.tsv",
    log:
        "logs/{arch}/{operation}/configs.log",
    benchmark:
        "logs/{arch}/{operation}/configs.tsv"
    localrule: True
    conda:
        "../../envs/tileseer.yaml"
    params:
        **command("configs", tables=RULE_SETS),
    message:
        "Enumerate the kernels of {wildcards.operation} for {wildcards.arch}"
    shell:
        run()
