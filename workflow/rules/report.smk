# Stage 12: one page that shows what came out.
PAGE = source("workflow/templates/report.html.j2")
PAGE_SCRIPTS = [
    source(f"workflow/templates/{name}") for name in ("sortable.min.js", "report.js")
]


rule report:
    input:
        each_operation(*TRAINED),
        **stage("report", tables={"template": PAGE}, reads=PAGE_SCRIPTS),
        validation=each_operation("results/validation/{arch}/{operation}.json"),
        dataset=each_operation("results/datasets/{arch}/{operation}.parquet"),
        kernels=each_operation(f"{SERVING}/{model_files.KERNELS}"),
        tables=recorded_tables,
    output:
        page=report(
            "results/reports/{arch}.html",
            category="Tileseer",
            labels={"arch": "{arch}"},
        ),
    log:
        "logs/{arch}/report.log",
    benchmark:
        "logs/{arch}/report.tsv"
    localrule: True
    conda:
        "../../envs/tileseer.yaml"
    params:
        **command(
            "report",
            training=each_operation(TRAINING),
            recording=recording_shown,
        ),
    message:
        "Show what came out for {wildcards.arch}"
    shell:
        run()
