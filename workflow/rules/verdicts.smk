# With benchmark.device: emulated, in the place of stage 6: which kernels compute right? There are no times.
rule verdicts:
    input:
        record=RECORD_OF_RUN,
        build="results/build/{arch}/{operation}/{chunk}.parquet",
        headers="results/headers/{arch}/{operation}/{chunk}.tar",
        driver=DRIVER,
        module=MODULE,
        aliases=ALIASES,
        hardware=HARDWARE,
        native=NATIVE_SOURCES,
    output:
        verdicts="results/verdicts/{arch}/{operation}/{chunk}.parquet",
    log:
        "logs/{arch}/{operation}/verdicts/{chunk}.log",
    conda:
        "../../envs/tileseer.yaml"
    resources:
        mem_mb=1024,
    params:
        settings=settings("verdicts"),
        code=code("verdicts"),
        tables=tables(HARDWARE, *NATIVE_SOURCES),
        toolchain=TOOLCHAIN,
        machine=machine,
        native=lambda wildcards: NATIVE,
    shell:
        f"python {SCRIPTS}/verdicts.py {CHECKED}"
        " --arch {wildcards.arch} --operation {wildcards.operation}"
        " --chunk {wildcards.chunk} --build {input.build} --headers {input.headers} --driver {input.driver}"
        " --module {input.module} --aliases {input.aliases} --hardware {input.hardware:q} --native {params.native:q}"
        " --settings {params.settings:q} {params.machine:q} --verdicts {output.verdicts} > {log} 2>&1"


rule verdict_table:
    input:
        record=RECORD_OF_RUN,
        verdicts=verdicts_of_arch,
        aliases=each_operation(ALIASES),
    output:
        table="results/verdicts/{arch}.tsv",
    log:
        "logs/{arch}/verdict_table.log",
    localrule: True
    conda:
        "../../envs/tileseer.yaml"
    params:
        code=code("verdict_table"),
    shell:
        f"python {SCRIPTS}/verdict_table.py {CHECKED}"
        " --arch {wildcards.arch} --verdicts {input.verdicts} --aliases {input.aliases}"
        " --table {output.table} > {log} 2>&1"
