# Stage 12: one page that shows what came out.
PAGE_SCRIPTS = [source(f"workflow/templates/{name}") for name in ("sortable.min.js", "report.js")]


rule report:
    input:
        training=each_operation(*rules.model.output),
        evaluation=each_operation("results/evaluation/{arch}/{operation}.json"),
        dataset=datasets_of_arch,
        kernels=each_operation("results/serving/{arch}/{operation}/kernels.json"),
        cudnn=cudnn_times,
        summary=summarized,
        template=source("workflow/templates/report.html.j2"),
        scripts=PAGE_SCRIPTS,
    output:
        page=report(
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
        settings=json.dumps(PORTABLE),
        code=code("report"),
        training=folders_of("training"),
        dataset=dataset_folders("dataset"),
        workflow=HERE,
        call=lambda wildcards: call_of(wildcards.arch),
    shell:
        f"python {SCRIPTS}/report.py"
        " --arch {wildcards.arch} --training {params.training} --evaluation {input.evaluation}"
        " --dataset {params.dataset:q} --kernels {input.kernels} --cudnn {input.cudnn:q}"
        " --call {params.call:q} --template {input.template:q} --workflow {params.workflow:q} --settings {params.settings:q}"
        " --page {output.page} > {log} 2>&1"
