from snakemake.utils import min_version

min_version("9.27")


include: "workflow/rules/config_files.smk"


configfile: CONFIG_FILE


include: "workflow/rules/common.smk"
include: "workflow/rules/inputs.smk"
include: "workflow/rules/arch_specs.smk"
include: "workflow/rules/problems.smk"
include: "workflow/rules/configs.smk"
include: "workflow/rules/headers.smk"
include: "workflow/rules/compile.smk"
include: "workflow/rules/support.smk"
include: "workflow/rules/plans.smk"
include: "workflow/rules/verdicts.smk"
include: "workflow/rules/benchmark.smk"
include: "workflow/rules/dataset.smk"
include: "workflow/rules/model.smk"
include: "workflow/rules/serving.smk"
include: "workflow/rules/evaluation.smk"
include: "workflow/rules/publish.smk"
include: "workflow/rules/report.smk"


# With the prefix of a module.
if line := ask(RUN.plan, Path(rules.arch_specs.output.json).parents[1]):
    print(line, file=sys.stderr)


# Everything for the configured arch: the models and the report.
rule all:
    default_target: True
    input:
        f"results/models/{SETTINGS.published_as(SETTINGS.arch)}",
        f"results/reports/{SETTINGS.published_as(SETTINGS.arch)}.html",


onstart:
    import shutil

    if line := ask(RUN.hold):
        print(line, flush=True)
    # Snakemake fails on the copy of an updated output that a run left which was killed.
    shutil.rmtree(".snakemake/backups", ignore_errors=True)
    if MEASURED and ASKED.arch not in SETTINGS.replays and not workflow.dag_settings.until:
        print(preflight.measuring_time(SETTINGS, ask(recordings.operations_of, SETTINGS, ASKED.arch)), flush=True)


onsuccess:
    from tileseer.cli.run_summary import print_summary

    stops = {*workflow.dag_settings.until, *workflow.dag_settings.omit_from} - {"publish", "report"}
    for arch, with_models in sorted(ARCHS.items()):
        print_summary(arch, SETTINGS.published_as(arch), call_of(arch), with_models, stops)
