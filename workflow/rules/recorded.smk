# Stages 2 to 7 of an arch that was measured elsewhere: its recording, replayed as a dataset.
import re

RECORDINGS = SETTINGS.replays
RECORDED = "|".join(map(re.escape, RECORDINGS)) or "(?!)"
NOT_RECORDED = f"(?!(?:{RECORDED})/)(?:{ARCH_PATTERN})"


def recording_of(arch, op):
    """Return the files of a recording that the dataset of one operation is made from."""
    tables = (f"{op}/{table}.parquet" for table in ("kernels", "pairs", "problems"))
    return [
        os.path.join(RECORDINGS[arch], name) for name in ("recording.json", *tables)
    ]


checkpoint recorded:
    input:
        lambda wildcards: recording_of(wildcards.arch, wildcards.op),
        script=source("workflow/scripts/recorded.py"),
        hardware=SETTINGS.hardware,
    output:
        table="results/datasets/{arch}/{op}.parquet",
    log:
        "logs/{arch}/{op}/recorded.log",
    wildcard_constraints:
        arch=RECORDED,
    conda:
        "../../envs/tileseer.yaml"
    params:
        modules=modules("recorded"),
        folder=lambda wildcards: RECORDINGS[wildcards.arch],
        product=product,
    shell:
        "python {input.script} --recording {params.folder:q} --operation {wildcards.op} --hardware {input.hardware:q}"
        " --product={params.product} --output {output.table} 2>&1 | tee {log}"
