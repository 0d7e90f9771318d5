# Stage 1: normalise the facts about GPU targets.
rule arch_specs:
    input:
        source=local(SETTINGS.arch_specs),
    output:
        json="results/arch_specs/arch_specs.json",
    log:
        "logs/arch_specs.log",
    localrule: True
    conda:
        "../../envs/tileseer.yaml"
    params:
        code=code("arch_specs"),
    message:
        "Normalise the facts about GPU targets"
    shell:
        f"python {SCRIPTS}/arch_specs.py" " --source {input.source:q} --json {output.json} > {log} 2>&1"
