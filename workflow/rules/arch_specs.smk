# What most stages have in common; it is never a job itself.
rule job:
    log:
        "logs/job.log",
    conda:
        "../../envs/tileseer.yaml"
    shell:
        run()


# The same of stages whose work several threads share.
rule job_of_threads:
    log:
        "logs/job.log",
    conda:
        "../../envs/tileseer.yaml"
    threads: THREADS
    shell:
        run("--threads {threads}")


# Stage 1: normalise the facts about GPU targets.
use rule job as arch_specs with:
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
    params:
        **command("arch_specs"),
    message:
        "Normalise the facts about GPU targets"
