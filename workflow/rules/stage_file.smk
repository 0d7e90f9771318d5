# One for every stage. With other settings or code a stage has another file, so its jobs run again.
rule stage_file:
    output:
        "results/stages/{stage}.{digest}.json",
    log:
        "logs/stages/{stage}.{digest}.log",
    localrule: True
    conda:
        "../../envs/tileseer.yaml"
    params:
        text=lambda wildcards: STAGE_FILES[f"{wildcards.stage}.{wildcards.digest}.json"],
    message:
        "Write the settings of {wildcards.stage}"
    shell:
        "printf '%s' {params.text:q} > {output} 2> {log}"
