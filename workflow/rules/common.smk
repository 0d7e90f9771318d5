# What all rules share: the checked configuration, the files of the stages, and how a job begins.
import getpass
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

from snakemake.cli import get_argument_parser
from snakemake.exceptions import WorkflowError
from tileseer import preflight
from tileseer.compile import registry, source_trees
from tileseer.config.compile import LIBRARIES
from tileseer.config.config import check
from tileseer.config.names import ARCH_PATTERN
from tileseer.config.operations import OPERATION_PATTERN, OPERATIONS
from tileseer.core import (
    code_digest,
    errors,
    places,
    runs,
    slurm,
    stage_file as stage_files,
)
from tileseer.core.atomic import write_text
from tileseer.core.script import RunEnvironment
from tileseer.core.stage_store import digest

# The folder of this workflow, seen from the working folder: "." unless another workflow uses this one as a module.
HERE = os.path.relpath(places.workflow_folder())


def source(path):
    """Path of a file of this workflow; no prefix of a module is put before it."""
    return local(Path(HERE, path).as_posix())


def command_line():
    """The words that Snakemake was called with; empty where a program or a job calls it.

    It has its targets only after the Snakefile was read.
    """
    program = Path(sys.argv[0]).name
    if workflow.is_main_process and program in ("snakemake", "__main__.py"):
        return get_argument_parser().parse_args()
    return SimpleNamespace(targets=(), forcerun=(), until=(), omit_from=())


CALL = command_line()


NATIVE, TEMPLATES = source("workflow/native"), source("workflow/templates")
RULE_SETS = source("config/rule_sets")
NATIVE_SOURCES = [local(str(path)) for path in sorted(Path(NATIVE).glob("*.[ch]*"))]

# What compiled kernels depend on outside of this folder. Without a compiler nothing could start: it is said here.
try:
    places.refuse_braces(os.path.abspath(HERE))
    runs.refuse_read_only(Path(".snakemake"))
    SETTINGS = check(config).located(HERE)
    # The jobs' own processes have it behind them.
    if workflow.is_main_process:
        preflight.refuse_faults(
            SETTINGS,
            CALL.targets,
            preflight.Tables(
                rule_sets=Path(RULE_SETS),
                coefficients=Path(source("config/simulated_device.yaml")),
                ck_api=Path(source("config/ck_api.yaml")),
            ),
        )
    ROOTS = {name: getattr(SETTINGS, name).root for name in LIBRARIES}
    TOOLCHAIN = registry.fingerprint(SETTINGS.compile, ROOTS)
    CK_LEVEL = source_trees.ck_level(
        SETTINGS.ck,
        Path(source("config/ck_api.yaml")),
        compiles=SETTINGS.compile.toolchain == "hipcc",
    )
except UserError as error:
    raise SystemExit(errors.lines_of(error)) from None

# Tables that no stage makes.
HARDWARE = local(SETTINGS.hardware)
COEFFICIENTS = source("config/simulated_device.yaml")
API = source("config/ck_api.yaml")
VALIDATION_LAYERS = local(SETTINGS.problems.validation)

PORTABLE = SETTINGS.portable()
CHUNKS = range(SETTINGS.configs.chunks)
DEVICE = SETTINGS.benchmark.device
COMPILES = SETTINGS.compile.toolchain != "none"
EMULATED = DEVICE == "emulated"
# Kernels run as machine code, so there are libraries of them; on a real GPU they are timed.
LINKED = DEVICE in ("cuda", "hip", "emulated")
MEASURED = LINKED and not EMULATED
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
    stage=r"\w+",
    digest=r"[0-9a-f]{16}",


STAGE_FILES = {}
CODE_STATES = {}


def stage_file(stage, sections=(), reads=(), **facts):
    """File with settings and code of a stage, its digest in its name (tileseer.core.stage_file).

    It holds sections of the configuration, digests of the files that the stage's folders lead to (reads), and what else
    decides about the outputs.
    """
    script = Path(source(f"workflow/scripts/{stage}.py"))
    settings = {section: PORTABLE[section] for section in sections}
    if reads:
        facts["reads"] = {path: digest(Path(path)) for path in sorted(reads)}
    text = stage_files.stage_file_text(script, settings, facts)
    name = stage_files.name_of_text(script, text)
    STAGE_FILES[name] = text
    CODE_STATES[stage] = code_digest.state_of_files(
        [script, *code_digest.modules_of(script).values()]
    )
    path = f"results/stages/{name}"
    # Where Snakemake's records are lost, it makes no missing input of an output that exists: so the file is there first.
    if not (workflow.output_settings.dryrun or os.path.exists(path)):
        try:
            write_text(path, text)
        except OSError as error:
            raise SystemExit(f"error: {path}: {error.strerror}") from None
    return path


def each_chunk(pattern):
    """One file per chunk."""
    return expand(pattern, chunk=CHUNKS, allow_missing=True)


def forecast(jobs):
    """A line on what compile jobs will cost; empty if nothing is compiled."""
    if not (COMPILES and jobs):
        return ""
    # Not above: it reads tables, and a run that compiles nothing needs none.
    from tileseer.compile.forecast import of_run

    return f"{of_run([job.wildcards for job in jobs], Path(RULE_SETS), SETTINGS)}\n"


onstart:
    try:
        RUN = runs.begin_run(Path(".snakemake"), Path("results"), Path("logs"))
        jobs = [job for job in workflow.dag.needrun_jobs() if job.rule.shellcmd]
        # The executor would try each job, or wait for ever for what it could not submit.
        if workflow.executor_plugin.name == "slurm":
            submitted = [
                slurm.ClusterJob(job.rule.name, job.group, job.resources)
                for job in jobs
                if not job.is_local
            ]
            slurm.refuse_jobs(submitted, getpass.getuser(), real_gpu=MEASURED)
        print(
            forecast([job for job in jobs if job.rule.name == "compile"]),
            end="",
            file=sys.stderr,
        )
    except UserError as error:
        raise WorkflowError(str(error)) from None


onsuccess:
    stage_files.remove_unused(Path("results/stages"), set(STAGE_FILES))
