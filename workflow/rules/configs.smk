# Stage 2: enumerate the kernels and deal them to chunks.
rule configs:
    input:
        **stage("configs", ["configs"], reads=[SETTINGS.configs.rule_set]),
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
        **command("configs"),
    message:
        "Enumerate the kernels of {wildcards.operation} for {wildcards.arch}"
    shell:
        run()
