# Stage 1: normalise the facts about GPU targets.
rule arch_specs:
    input:
        source=local(SETTINGS.arch_specs),
        settings=stage_file("arch_specs"),
    output:
        json="results/arch_specs/arch_specs.json",
    log:
        "logs/arch_specs.log",
    localrule: True
    conda:
        "../../envs/tileseer.yaml"
    message:
        "Normalise the facts about GPU targets"
    shell:
        'python "$SCRIPTS"/arch_specs.py --source {input.source:q}'
        " --settings {input.settings} --json {output.json} 2>&1 | tee {log}"
