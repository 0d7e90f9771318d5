# Stage 1: normalise the facts about GPU targets.
rule arch_specs:
    input:
        source=local(SETTINGS.arch_specs),
        template=source("workflow/templates/arch_specs.py.j2"),
    output:
        json="results/arch_specs/arch_specs.json",
        python="results/arch_specs/arch_specs.py",
    log:
        "logs/arch_specs.log",
    localrule: True
    conda:
        "../../envs/tileseer.yaml"
    params:
        code=code("arch_specs"),
    shell:
        f"python {SCRIPTS}/arch_specs.py --source {{input.source:q}} --template {{input.template:q}}"
        " --json {output.json} --python {output.python} > {log} 2>&1"
