# Stage 7: bring the journals of all chunks together; or replay those of an arch that was measured elsewhere.
# No inputs of the rule: who has the receipts has these, and --batch dataset=1/10 deals chunks.
BEHIND_RECEIPTS = {
    "build": each_chunk("results/build/{arch}/{operation}/{chunk}.parquet"),
    "support": each_chunk("results/support/{arch}/{operation}/{chunk}.parquet"),
    "journals": each_chunk([JOURNAL, REPEATS] if MEASURED else [JOURNAL]),
}


rule dataset:
    input:
        **stage("dataset"),
        problems="results/problems/{operation}.parquet",
        receipts=each_chunk("results/benchmark/{arch}/{operation}/{chunk}.json"),
        aliases=ALIASES,
        chosen=CHOSEN,
    output:
        dataset="results/datasets/{arch}/{operation}.parquet",
        quarantine="results/datasets/{arch}/{operation}.quarantine.tsv",
    log:
        "logs/{arch}/{operation}/dataset.log",
    benchmark:
        "logs/{arch}/{operation}/dataset.tsv"
    wildcard_constraints:
        arch=f"(?!(?:{RECORDED})/)(?:{ARCH_PATTERN})",
    conda:
        "../../envs/tileseer.yaml"
    resources:
        mem_mb=1024,
    params:
        **command("dataset", **BEHIND_RECEIPTS),
    message:
        "Assemble the dataset of {wildcards.operation} for {wildcards.arch}"
    shell:
        run("--memory-mib {resources.mem_mb}")


rule recorded:
    input:
        **stage("recorded", tables=DEVICE),
        tables=lambda wildcards: recording_of(**wildcards),
    output:
        dataset="results/datasets/{arch}/{operation}.parquet",
    log:
        "logs/{arch}/{operation}/recorded.log",
    benchmark:
        "logs/{arch}/{operation}/recorded.tsv"
    wildcard_constraints:
        arch=RECORDED,
    conda:
        "../../envs/tileseer.yaml"
    params:
        **command("recorded", product=product, recording=recording_shown),
    message:
        "Replay what was recorded of {wildcards.operation} on {wildcards.arch}"
    shell:
        run()
