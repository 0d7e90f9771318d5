# Stage 7: bring the journals of all chunks together.
rule dataset:
    input:
        record=RECORD_OF_RUN,
        receipts=each_chunk("results/benchmark/{arch}/{operation}/{chunk}.json"),
        build=each_chunk("results/build/{arch}/{operation}/{chunk}.parquet"),
        support=each_chunk("results/support/{arch}/{operation}/{chunk}.parquet"),
        problems="results/problems/{operation}.parquet",
        aliases=ALIASES,
    output:
        problems="results/datasets/{arch}/{operation}/problems.parquet",
        kernels="results/datasets/{arch}/{operation}/kernels.parquet",
        pairs="results/datasets/{arch}/{operation}/pairs.parquet",
        recording="results/datasets/{arch}/{operation}/recording.json",
        quarantine="results/datasets/{arch}/{operation}/quarantine.tsv",
    log:
        "logs/{arch}/{operation}/dataset.log",
    wildcard_constraints:
        arch=f"(?!(?:{RECORDED})/)(?:{ARCH_PATTERN})",
    conda:
        "../../envs/tileseer.yaml"
    resources:
        mem_mb=1024,
    params:
        code=code("dataset"),
        folder=subpath(output.pairs, parent=True),
    shell:
        f"python {SCRIPTS}/dataset.py {CHECKED}"
        " --arch {wildcards.arch} --operation {wildcards.operation}"
        " --receipts {input.receipts} --build {input.build} --support {input.support} --problems {input.problems}"
        " --aliases {input.aliases} --dataset {params.folder} > {log} 2>&1"
