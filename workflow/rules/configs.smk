# Stage 2: enumerate the kernels and deal them to chunks.
from tileseer.libraries import rule_sets

RULE_TABLES = [outside(path) for path in rule_sets.rule_set_files(SETTINGS.configs.rule_set, Path(RULE_SETS))]
INSTANCES = [
    outside(path) for path in rule_sets.instance_files(SETTINGS.configs.rule_set, Path(RULE_SETS), SETTINGS.ck.root)
]


rule configs:
    input:
        record=RECORD_OF_RUN,
        arch_specs="results/arch_specs/arch_specs.json",
        tables=RULE_TABLES,
        # Of a checkout of Composable Kernel, for the rule sets that are read from one.
        instances=INSTANCES,
    output:
        kernels="results/configs/{arch}/{operation}.parquet",
        rejected="results/configs/{arch}/{operation}.rejected.tsv",
    log:
        "logs/{arch}/{operation}/configs.log",
    localrule: True
    conda:
        "../../envs/tileseer.yaml"
    params:
        settings=settings("configs"),
        code=code("configs"),
        tables=tables(*RULE_TABLES, *INSTANCES),
        machine=machine,
        rule_sets=lambda wildcards: RULE_SETS,
    shell:
        f"python {SCRIPTS}/configs.py {CHECKED}"
        " --arch {wildcards.arch} --operation {wildcards.operation}"
        " --arch-specs {input.arch_specs} --tables {params.rule_sets:q} --settings {params.settings:q} {params.machine:q}"
        " --kernels {output.kernels} --rejected {output.rejected} > {log} 2>&1"
