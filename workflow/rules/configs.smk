# Stage 2: enumerate the kernels and deal them to chunks.
from tileseer.gpu.arch import ArchSpecs, arch_digest


def facts_of_arch(wildcards):
    """Return a digest of what the kernels of one arch depend on: another arch's facts do not rebuild them."""
    path = "results/arch_specs/arch_specs.json"
    if not os.path.exists(path):
        return "absent"
    try:
        return arch_digest(ArchSpecs.load(path), wildcards.arch)
    except UserError:
        # The script says what is wrong, in one line; an error here would come with a traceback.
        return "unknown"


def chunk_content(wildcards):
    """Return a digest of the kernels of one chunk: those of other chunks do not rebuild it."""
    path = Path(f"results/configs/{wildcards.arch}/{wildcards.op}.plan.tsv")
    return planned(path).get(wildcards.chunk, "absent") if path.exists() else "absent"


checkpoint configs:
    input:
        script=source("workflow/scripts/configs.py"),
        rule_set=SETTINGS.configs.rule_set,
        arch_specs=ancient("results/arch_specs/arch_specs.json"),
    output:
        kernels="results/configs/{arch}/{op}.parquet",
        rejected="results/configs/{arch}/{op}.rejected.tsv",
        plan="results/configs/{arch}/{op}.plan.tsv",
    log:
        "logs/{arch}/{op}/configs.log",
    localrule: True
    conda:
        "../../envs/tileseer.yaml"
    params:
        modules=modules("configs"),
        facts=facts_of_arch,
        settings=SETTINGS.configs.to_json(),
    shell:
        "python {input.script} --arch {wildcards.arch} --operation {wildcards.op} --arch-specs {input.arch_specs}"
        " --settings {params.settings:q} --kernels {output.kernels} --rejected {output.rejected}"
        " --plan {output.plan} 2>&1 | tee {log}"
