# Stage 5: decide on the CPU which pairs can run.
#
# By our rules, or by the host code of the compiled library; where the two differ is then a second table.
import shlex

LIBRARY = SETTINGS.support.source == "library"


def library_options(wildcards, input, output):
    """Return what the script needs to ask the library, or nothing where our rules decide."""
    if not LIBRARY:
        return ""
    folder = os.path.dirname(input.stand_in)
    return (
        f"--headers {input.headers} --native {folder} --disagreements {output.disagreements}"
        f" --compile {shlex.quote(SETTINGS.compile.to_json())} --ck {shlex.quote(SETTINGS.ck.to_json())}"
    )


checkpoint support:
    input:
        script=source("workflow/scripts/support.py"),
        hardware=SETTINGS.hardware,
        build=made_by(
            "compile", "results/build/{arch}/{op}/{chunk}.parquet", user="support"
        ),
        problems=ancient("results/problems/{op}.parquet"),
        headers=(
            made_by(
                "headers", "results/headers/{arch}/{op}/{chunk}.tar", user="support"
            )
            if LIBRARY
            else []
        ),
        stand_in=source("workflow/native/hip_stand_in.cpp") if LIBRARY else [],
    output:
        **(
            {
                "disagreements": "results/support/{arch}/{op}/{chunk}.disagreements.parquet"
            }
            if LIBRARY
            else {}
        ),
        table="results/support/{arch}/{op}/{chunk}.parquet",
    log:
        "logs/{arch}/{op}/support/{chunk}.log",
    conda:
        "../../envs/tileseer.yaml"
    resources:
        **({"mem_mb": memory_mib(SETTINGS.compile)} if LIBRARY else {}),
    params:
        modules=modules("support"),
        made=content(
            "results/build/{arch}/{op}/{chunk}.parquet",
            "results/problems/{op}.parquet",
            *(["results/headers/{arch}/{op}/{chunk}.tar"] if LIBRARY else []),
        ),
        product=product,
        settings=SETTINGS.support.to_json(),
        library=library_options,
        toolchain=TOOLCHAIN if LIBRARY else "",
    shell:
        "python {input.script} --arch {wildcards.arch} --operation {wildcards.op} --build {input.build} --problems {input.problems}"
        " --hardware {input.hardware:q} --product={params.product} --settings {params.settings:q} {params.library} --output {output.table} 2>&1 | tee {log}"
