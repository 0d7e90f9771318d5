# Stage 4: compile a chunk's kernels, or estimate what they would cost.
checkpoint compile:
    input:
        modules=modules("compile"),
        script=source("workflow/scripts/compile.py"),
        hardware=SETTINGS.hardware,
        coefficients=source("config/simulated_device.yaml"),
        configs=ancient("results/configs/{arch}/{op}.parquet"),
        headers=ancient("results/headers/{arch}/{op}/{chunk}.tar"),
    output:
        table="results/build/{arch}/{op}/{chunk}.parquet",
        costs="results/build/{arch}/{op}/{chunk}.costs.parquet",
    log:
        "logs/{arch}/{op}/compile/{chunk}.log",
    conda:
        "../../envs/tilewright.yaml"
    params:
        kernels=chunk_content,
        headers=content("results/headers/{arch}/{op}/{chunk}.tar"),
        product=product,
        settings=SETTINGS.compile.to_json(),
    shell:
        "python {input.script} --arch {wildcards.arch} --configs {input.configs} --chunk {wildcards.chunk}"
        " --headers {input.headers} --hardware {input.hardware:q} --product={params.product}"
        " --coefficients {input.coefficients} --settings {params.settings:q} --output {output.table}"
        " --costs {output.costs} 2>&1 | tee {log}"
