# Stage 7: bring the journals of all chunks together; or replay those of an arch that was measured elsewhere.
rule dataset:
    input:
        receipts=each_chunk("results/benchmark/{arch}/{operation}/{chunk}.json"),
        build=each_chunk("results/build/{arch}/{operation}/{chunk}.parquet"),
        support=each_chunk("results/support/{arch}/{operation}/{chunk}.parquet"),
        problems="results/problems/{operation}.parquet",
        aliases=ALIASES,
    output:
        dataset="results/datasets/{arch}/{operation}.parquet",
        quarantine="results/datasets/{arch}/{operation}.quarantine.tsv",
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
    message:
        "Assemble the dataset of {wildcards.operation} for {wildcards.arch}"
    shell:
        f"python {SCRIPTS}/dataset.py"
        " --arch {wildcards.arch} --operation {wildcards.operation}"
        " --receipts {input.receipts} --build {input.build} --support {input.support} --problems {input.problems}"
        " --aliases {input.aliases}"
        ""
        " --dataset {output.dataset} --quarantine {output.quarantine} > {log} 2>&1"


rule recorded:
    input:
        tables=lambda wildcards: recording_of(**wildcards),
        hardware=HARDWARE,
        coefficients=COEFFICIENTS,
    output:
        dataset="results/datasets/{arch}/{operation}.parquet",
    log:
        "logs/{arch}/{operation}/recorded.log",
    wildcard_constraints:
        arch=RECORDED,
    conda:
        "../../envs/tileseer.yaml"
    params:
        code=code("recorded"),
        product=product,
    message:
        "Replay what was recorded of {wildcards.operation} on {wildcards.arch}"
    shell:
        f"python {SCRIPTS}/recorded.py"
        " --arch {wildcards.arch} --operation {wildcards.operation}"
        " --tables {input.tables:q} --hardware {input.hardware:q} --product {params.product:q} --coefficients {input.coefficients:q}"
        " --dataset {output.dataset} > {log} 2>&1"
