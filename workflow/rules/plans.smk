# Instead of stages 2 to 5 where a library offers the kernels: ask it on the GPU which plans it has for each problem.
from tileseer.libraries.registry import installed


ruleorder: plans > compile
ruleorder: plans > support


rule plans:
    input:
        record=RECORD_OF_RUN,
        problems="results/problems/{operation}.parquet",
        hardware=HARDWARE,
        coefficients=COEFFICIENTS,
        driver=measuring_driver,
    output:
        build="results/build/{arch}/{operation}/{chunk}.parquet",
        support="results/support/{arch}/{operation}/{chunk}.parquet",
    log:
        "logs/{arch}/{operation}/plans/{chunk}.log",
    wildcard_constraints:
        arch="|".join(library.archs.replace("*", r"\w+") for library in installed() if library.offered),
    conda:
        "../../envs/tileseer.yaml"
    resources:
        gpu=1,
        mem_mb=1024,
    params:
        settings=settings("plans"),
        code=code("plans"),
        tables=tables(HARDWARE, COEFFICIENTS),
        machine=machine,
        product=product,
        chunks=len(CHUNKS),
    shell:
        f"python {SCRIPTS}/plans.py {CHECKED}"
        " --arch {wildcards.arch} --operation {wildcards.operation} --chunk {wildcards.chunk}"
        " --chunks {params.chunks} --problems {input.problems}"
        " --hardware {input.hardware:q} --product {params.product:q} --coefficients {input.coefficients:q}"
        " --driver {input.driver} --settings {params.settings:q} {params.machine:q}"
        " --build {output.build} --support {output.support} > {log} 2>&1"
