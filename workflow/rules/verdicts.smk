# With benchmark.device: emulated, in the place of stage 6: which kernels compute right? There are no times.
VERDICTS = "results/verdicts/{arch}/{operation}/{chunk}.parquet"


rule verdicts:
    input:
        **stage("verdicts", ["benchmark", *COMPILING], toolchain=TOOLCHAIN),
        **HARDWARE,
        build="results/build/{arch}/{operation}/{chunk}.parquet",
        headers="results/headers/{arch}/{operation}/{chunk}.tar",
        driver=DRIVER,
        module=MODULE,
        aliases=ALIASES,
    output:
        verdicts=VERDICTS,
    log:
        "logs/{arch}/{operation}/verdicts/{chunk}.log",
    benchmark:
        "logs/{arch}/{operation}/verdicts/{chunk}.tsv"
    conda:
        "../../envs/tileseer.yaml"
    resources:
        mem_mb=1024,
    params:
        **command("verdicts", native=NATIVE),
    message:
        "Execute {wildcards.operation} for {wildcards.arch}, chunk {wildcards.chunk}"
    shell:
        run()


rule verdict_table:
    input:
        **stage("verdict_table"),
        verdicts=executed,
        aliases=each_operation(*ALIASES),
    output:
        table="results/verdicts/{arch}.tsv",
    log:
        "logs/{arch}/verdict_table.log",
    benchmark:
        "logs/{arch}/verdict_table.tsv"
    localrule: True
    conda:
        "../../envs/tileseer.yaml"
    params:
        **command("verdict_table"),
    message:
        "Bring the verdicts on the kernels of {wildcards.arch} together"
    shell:
        run()
