# Stages 2 to 7 of an arch that was measured elsewhere: its recording, replayed as a dataset.
import re

RECORDINGS = SETTINGS.replays
RECORDED = "|".join(map(re.escape, RECORDINGS)) or "(?!)"
NOT_RECORDED = f"(?!(?:{RECORDED})/)(?:{ARCH_PATTERN})"


checkpoint recorded:
    input:
        lambda wildcards: [
            os.path.join(RECORDINGS[wildcards.arch], name)
            for name in (
                "recording.json",
                *(
                    f"{wildcards.op}/{table}.parquet"
                    for table in ("kernels", "pairs", "problems")
                ),
            )
        ],
        script=source("workflow/scripts/recorded.py"),
        hardware=SETTINGS.hardware,
    output:
        table="results/datasets/{arch}/{op}.parquet",
    log:
        "logs/{arch}/{op}/recorded.log",
    wildcard_constraints:
        arch=RECORDED,
    conda:
        "../../envs/tilewright.yaml"
    params:
        modules=modules("recorded"),
        folder=lambda wildcards: RECORDINGS[wildcards.arch],
        product=product,
    shell:
        "python {input.script} --recording {params.folder:q} --operation {wildcards.op} --hardware {input.hardware:q}"
        " --product={params.product} --output {output.table} 2>&1 | tee {log}"
