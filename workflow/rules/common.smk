# What all stages share: the checked configuration, a stage's file, and the command line of a script.
#
# A stage is a plain rule. Whether it has to compute is decided by its script (docs/decisions.md, 2).
import getpass
import os
import sys
from pathlib import Path

# A Snakefile that was copied with its src runs that code; one that was installed, the package that brings it.
SRC = Path((lambda: 0).__code__.co_filename).resolve().parents[2] / "src"
if SRC.is_dir():
    sys.path.insert(0, str(SRC))

from snakemake import exceptions
from snakemake.exceptions import WorkflowError
from tileseer.compile import registry, trees
from tileseer.compile.registry import memory_mib
from tileseer.core import cluster, events, places, runs, stage_files
from tileseer.core.errors import UserError
from tileseer.settings.compile import LIBRARIES
from tileseer.settings.config import ARCH_PATTERN, OPERATION_PATTERN, OPERATIONS, check

# The folder of this workflow, seen from the working folder: "." unless another workflow uses this one as a module.
HERE = os.path.relpath(places.workflow_folder())


def source(path):
    """Path of a file of this workflow."""
    return Path(HERE, path).as_posix()


API, COEFFICIENTS = source("config/ck_api.yaml"), source("config/simulated_device.yaml")
NATIVE, TEMPLATES = source("workflow/native"), source("workflow/templates")

# What compiled kernels depend on outside of this folder. Without a compiler nothing could start: it is said here.
try:
    places.refuse_braces(os.path.abspath(HERE))
    SETTINGS = check(config).located(HERE)
    ROOTS = {name: getattr(SETTINGS, name).root for name in LIBRARIES}
    TOOLCHAIN = registry.fingerprint(SETTINGS.compile, ROOTS)
    CK_LEVEL = trees.ck_level(
        SETTINGS.ck, Path(API), compiles=SETTINGS.compile.toolchain == "hipcc"
    )
    RUN = runs.enter(Path(".snakemake"), SETTINGS.of_the_machine(), SETTINGS.arch)
except UserError as error:
    # One line, the last one on the screen.
    raise SystemExit(f"error: {error}") from None

# Snakemake's own text advises --unlock while the other run lives.
exceptions.LockException = lambda: WorkflowError(runs.busy(Path(".snakemake")))

HARDWARE = {"hardware": SETTINGS.hardware}
DEVICE = {**HARDWARE, "coefficients": COEFFICIENTS}
PORTABLE = SETTINGS.portable()
CHUNKS = range(SETTINGS.configs.chunks)
# What one operation may use, so that all of them learn side by side; no result depends on it.
# A cluster has no number of cores.
THREADS = max(
    1,
    (workflow.resource_settings.cores or 16) // len(SETTINGS.operations or OPERATIONS),
)


wildcard_constraints:
    arch=ARCH_PATTERN,
    operation=OPERATION_PATTERN,
    chunk=r"\d+",


def cost_of(jobs):
    """A line on what compile jobs will take; empty if nothing is compiled."""
    if not (COMPILES and jobs):
        return ""
    # Not above: it reads tables, and a run that compiles nothing needs none.
    from tileseer.compile import forecast

    try:
        asked = [job.wildcards for job in jobs]
        return f"{forecast.of_run(asked, Path(RULE_SETS), SETTINGS)}\n"
    except UserError as error:
        raise WorkflowError(str(error)) from None


onstart:
    # A job would end in a traceback of Snakemake, which removes old outputs first.
    if fault := runs.read_only(Path("results"), Path("logs")):
        raise WorkflowError(fault)
    # The executor would try each job, or wait for ever for what it could not submit.
    if workflow.executor_plugin.name == "slurm":
        jobs = [
            (job.rule.name, job.resources)
            for job in workflow.dag.needrun_jobs()
            if not job.is_local
        ]
        if fault := cluster.refusal(jobs, getpass.getuser(), real_gpu=MEASURED):
            raise WorkflowError(fault)
    if RUN.is_main:
        needed = [job for job in workflow.dag.needrun_jobs() if job.rule.shellcmd]
        told = cost_of([job for job in needed if job.rule.name == "compile"])
        events.tell("plan", jobs=len(needed), told=told)
        print(told, end="", file=sys.stderr, flush=True)


onsuccess:
    print(RUN.summary())


onerror:
    print(RUN.summary())


shell.prefix("set -euo pipefail; " + runs.job_prefix(Path(".snakemake")))
DIGESTS, READS = {}, {}


def stage(name, sections=(), tables={}, reads=(), **known):
    """Inputs of a stage that no other stage makes: its file, and the tables that are options of its script.

    The file holds sections of the configuration, what else is known, and digests of the tables, of what the settings
    name (reads) and of the code (tileseer.core.stage_files).
    """
    READS[name] = [*tables.values(), *reads]
    path = f"results/stages/{name}.json"
    settings = {section: PORTABLE[section] for section in sections}
    script = Path(source(f"workflow/scripts/{name}.py"))
    text = stage_files.content(script, settings, READS[name], known)
    DIGESTS[name] = stage_files.write(Path(path), text, may_write=RUN.is_main)
    return {"settings": path, **tables}


def command(name, **more):
    """Parameters of a rule: digest of its stage's file; script with inputs, outputs, wildcards and more as options."""

    def line(wildcards, input, output):
        options = [*wildcards.items(), *input.items(), *output.items(), *more.items()]
        script = source(f"workflow/scripts/{name}.py")
        return stage_files.command_line(script, options, wildcards)

    return {"stage": DIGESTS[name], "line": line}


def run(resources=""):
    """Shell text of a rule with these parameters."""
    told = "TILESEER_STAGE={params.stage} TILESEER_LOG={log}"
    return f"{told} python {{params.line}} {resources} 2>&1 | tee {{log}}"


def gpus(wildcards):
    """How much of the limit of one a measuring job takes; on a cluster the profile asks SLURM for a GPU instead."""
    return 0 if workflow.executor_plugin.name.startswith("slurm") else 1


def product(wildcards):
    """GPU product that stands for an arch; the scripts explain an empty one."""
    return SETTINGS.benchmark.products.get(wildcards.arch, "")


def each_chunk(pattern):
    """One file a chunk."""
    return expand(pattern, chunk=CHUNKS, allow_missing=True)


def each_operation(*patterns):
    """Files of an arch: one an operation and pattern."""
    return lambda wildcards: expand(
        patterns, operation=operations_of(wildcards), arch=wildcards.arch
    )
