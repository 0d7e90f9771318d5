# Stage 1: normalise the facts about GPU targets.
ARCH_SPECS = outside(SETTINGS.arch_specs)
ARCH_SPECS_TEMPLATE = source("workflow/templates/arch_specs.py.j2")


rule arch_specs:
    input:
        record=RECORD_OF_RUN,
        source=ARCH_SPECS,
        template=ARCH_SPECS_TEMPLATE,
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
        tables=tables(ARCH_SPECS, ARCH_SPECS_TEMPLATE),
    shell:
        f"python {SCRIPTS}/arch_specs.py {CHECKED} --source {{input.source:q}} --template {{input.template:q}}"
        " --json {output.json} --python {output.python} > {log} 2>&1"
