# Stage 1: normalise the facts about GPU targets.
rule arch_specs:
    input:
        **stage(
            "arch_specs",
            tables={
                "source": SETTINGS.arch_specs,
                "template": source("workflow/templates/arch_specs.py.j2"),
            },
        ),
    output:
        json="results/arch_specs/arch_specs.json",
        python="results/arch_specs/arch_specs.py",
    log:
        "logs/arch_specs.log",
    benchmark:
        "logs/arch_specs.tsv"
    localrule: True
    conda:
        "../../envs/tileseer.yaml"
    params:
        **command("arch_specs"),
    message:
        "Normalise the facts about GPU targets"
    shell:
        run()
