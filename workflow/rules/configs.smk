# Stage 2: enumerate the kernels and deal them to chunks.
from tileseer.kernels import rule_sets

RULE_TABLES = rule_sets.rule_set_files(SETTINGS.configs.rule_set, Path(RULE_SETS))
INSTANCES = rule_sets.digest_instances(
    SETTINGS.configs.rule_set, Path(RULE_SETS), SETTINGS.ck.root
)


rule configs:
    input:
        arch_specs="results/arch_specs/arch_specs.json",
        tables=[local(path) for path in RULE_TABLES],
        settings=stage_file("configs", ["configs"], reads=RULE_TABLES, **INSTANCES),
    output:
        kernels="results/configs/{arch}/{operation}.parquet",
        rejected="results/configs/{arch}/{operation}.rejected.tsv",
        plan="results/configs/{arch}/{operation}.plan.tsv",
    log:
        "logs/{arch}/{operation}/configs.log",
    localrule: True
    conda:
        "../../envs/tileseer.yaml"
    params:
        rule_sets=lambda wildcards: RULE_SETS,
    message:
        "Enumerate the kernels of {wildcards.operation} for {wildcards.arch}"
    shell:
        'python "$SCRIPTS"/configs.py --arch {wildcards.arch} --operation {wildcards.operation}'
        " --arch-specs {input.arch_specs} --tables {params.rule_sets:q} --settings {input.settings}"
        " --kernels {output.kernels} --rejected {output.rejected} --plan {output.plan} 2>&1 | tee {log}"
