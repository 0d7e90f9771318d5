# Stage 12: one page that shows what came out, and all judged layers beside it.
REPORT = f"results/reports/{SETTINGS.published_as('{arch}')}"
REPORT_PAGE = source("workflow/templates/report.html.j2")


rule report:
    input:
        record=RECORD_OF_RUN,
        evaluation=each_operation("results/evaluation/{arch}/{operation}.json"),
        judged=each_operation("results/evaluation/{arch}/{operation}.parquet"),
        kernels=each_operation("results/serving/{arch}/{operation}/kernels.json"),
        dataset=datasets_of_arch,
        summary=summarized(with_models=False),
        template=REPORT_PAGE,
    output:
        page=report(
            f"{REPORT}.html",
            category="Tileseer",
            labels={"arch": "{arch}"},
        ),
        layers=f"{REPORT}.csv",
    log:
        "logs/{arch}/report.log",
    localrule: True
    conda:
        "../../envs/tileseer.yaml"
    params:
        settings=json.dumps(PORTABLE),
        code=code("report"),
        tables=lambda wildcards: tables(*datasets_of_arch(wildcards), REPORT_PAGE),
        dataset=lambda wildcards, input: dataset_folders("dataset")(wildcards, input)[0],
        workflow=lambda wildcards: HERE,
        call=lambda wildcards: call_of(wildcards.arch),
    shell:
        f"python {SCRIPTS}/report.py {CHECKED}"
        " --arch {wildcards.arch} --evaluation {input.evaluation} --kernels {input.kernels} --dataset {params.dataset:q}"
        " --call {params.call:q} --template {input.template:q} --workflow {params.workflow:q} --settings {params.settings:q}"
        " --page {output.page} --layers {output.layers} > {log} 2>&1"
