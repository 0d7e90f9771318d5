# Stage 12: one page that shows what came out.
SHOWN = [TRAINED[name] for name in ("manifest", "cv", "importances", "hardware")]


rule report:
    input:
        script=source("workflow/scripts/report.py"),
        trained=each_operation(*SHOWN),
        template=source("workflow/templates/report.html.j2"),
        interaction=source("workflow/templates/report.js"),
        validation=each_operation("results/validation/{arch}/{op}.json"),
        dataset=each_operation("results/datasets/{arch}/{op}.parquet"),
        # How a recording was made, and what its kernels are compared with, where it has that.
        recorded=lambda wildcards: (
            [os.path.join(RECORDINGS[wildcards.arch], "recording.json")]
            if wildcards.arch in RECORDINGS
            else []
        ),
        library=lambda wildcards: [
            table
            for op in SETTINGS.operations
            for table in [
                os.path.join(RECORDINGS.get(wildcards.arch, ""), op, "cudnn.csv")
            ]
            if wildcards.arch in RECORDINGS and os.path.exists(table)
        ],
    output:
        report(
            "results/reports/{arch}.html",
            category="Tileseer",
            labels={"arch": "{arch}"},
        ),
    log:
        "logs/{arch}/report.log",
    localrule: True
    conda:
        "../../envs/tileseer.yaml"
    params:
        modules=modules("report"),
        made=each_operation_content(
            "results/validation/{arch}/{op}.json",
            "results/datasets/{arch}/{op}.parquet",
            *SHOWN,
        ),
        training=[f"results/training/{{arch}}/{op}" for op in SETTINGS.operations],
        recording=lambda wildcards: (
            ["--recording", RECORDINGS[wildcards.arch]]
            if wildcards.arch in RECORDINGS
            else []
        ),
    shell:
        "python {input.script} --template {input.template} --validation {input.validation}"
        " --training {params.training} --dataset {input.dataset} {params.recording:q}"
        " --output {output} 2>&1 | tee {log}"
