# Stage 7: bring the journals of all chunks together.
checkpoint dataset:
    input:
        script=source("workflow/scripts/dataset.py"),
        problems=ancient("results/problems/{op}.parquet"),
        aliases=[ancient(path) for path in ALIASES],
        chosen=[ancient(path) for path in CHOSEN],
        receipts=each_chunk("results/benchmark/{arch}/{op}/{chunk}.json"),
    output:
        table="results/datasets/{arch}/{op}.parquet",
        quarantine="results/datasets/{arch}/{op}.quarantine.tsv",
    log:
        "logs/{arch}/{op}/dataset.log",
    wildcard_constraints:
        arch=NOT_RECORDED,
    conda:
        "../../envs/tileseer.yaml"
    resources:
        # No parameter: it changes no result. Who gives the job another memory gives it to the stage.
        mem_mb=1024,
    params:
        modules=modules("dataset"),
        # No inputs: who has the receipts has these, and Snakemake would weigh this job anew after each job that makes one.
        build=each_path("results/build/{arch}/{op}/{chunk}.parquet"),
        support=each_path("results/support/{arch}/{op}/{chunk}.parquet"),
        aliases=aliases,
        chosen=chosen,
        chosen_content=content(*ALIASES, *CHOSEN),
        made=each_content(
            "results/problems/{op}.parquet",
            "results/build/{arch}/{op}/{chunk}.parquet",
            "results/support/{arch}/{op}/{chunk}.parquet",
            "results/benchmark/{arch}/{op}/{chunk}.json",
        ),
    shell:
        "python {input.script} --arch {wildcards.arch} --operation {wildcards.op} --problems {input.problems}"
        " --build {params.build} --support {params.support} --receipts {input.receipts} {params.aliases} {params.chosen}"
        " --memory-mib {resources.mem_mb} --output {output.table} --quarantine {output.quarantine} 2>&1 | tee {log}"
