# Stage 1: normalise the facts about GPU targets.
checkpoint arch_specs:
    input:
        script=source("workflow/scripts/arch_specs.py"),
        source=SETTINGS.arch_specs,
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
        modules=modules("arch_specs"),
    shell:
        "python {input.script} --source {input.source:q} --template {input.template}"
        " --out-json {output.json} --out-python {output.python} 2>&1 | tee {log}"
