# What all stages share: the checked configuration, the wildcards, and how a rule names its inputs.
#
# Every stage is a checkpoint, takes the files of earlier stages as ancient() and their content in params.
# So a stage runs exactly when the content of an input differs from the one it last saw, even if the stage
# that made that input has run in between (docs/decisions/0002-early-cutoff.md).
import hashlib
import os
import sys
from functools import cache
from pathlib import Path

# The folder of this workflow, seen from the working folder: "." unless another workflow uses this one as a module.
HERE = os.path.relpath(os.path.join(workflow.current_basedir, "../.."))
sys.path.insert(0, os.path.abspath(os.path.join(HERE, "src")))

from snakemake.exceptions import WorkflowError
from tileseer.core import modules as package_modules
from tileseer.configs import plan
from tileseer.core import runs
from tileseer.core.errors import UserError
from tileseer.settings.config import ARCH_PATTERN, check
from tileseer.compile import ck_tree

# Snakemake puts paths into its own formats, where a brace begins a name.
if set("{}") & set(os.path.abspath(HERE)):
    raise WorkflowError(
        f"{os.path.abspath(HERE)}: Snakemake cannot work in a folder with a brace in its path; rename the folder"
    )

try:
    SETTINGS = check(config).located(HERE)
except UserError as error:
    raise WorkflowError(str(error)) from None


def source(path):
    """Return the path of a file of this workflow."""
    return Path(HERE, path).as_posix()


try:
    CK_LEVEL = ck_tree.level(
        SETTINGS.ck,
        Path(source("config/ck_api.yaml")),
        compiles=SETTINGS.compile.toolchain == "hipcc",
    )
except UserError as error:
    raise WorkflowError(str(error)) from None


onstart:
    # A job would end in a traceback of Snakemake, which removes old outputs first.
    if folder := next(runs.read_only(Path("results")), None):
        raise WorkflowError(
            f"{folder}: the folder is read-only, but results are to be written; make it writable or "
            "move it out of results"
        )


# The default of the GPU limit, for those who replace the profile's resources by their own.
workflow.global_resources.setdefault("gpu", 1)

# Where compile results are shared changes no result: no parameter of a rule, which would rerun it.
os.environ.update(TILESEER_CACHE=SETTINGS.cache.to_json())

# The calls of Snakemake that run single jobs on a cluster belong to the run that submitted them.
if workflow.is_main_process:
    RUN = runs.begin(Path(".snakemake"))

# The first part is Snakemake's own prefix, which ours replaces.
shell.prefix(
    "set -euo pipefail; "
    + runs.job_prefix(Path(".snakemake"))
    + f'export PYTHONPATH="{source("src")}${{{{PYTHONPATH:+:$PYTHONPATH}}}}"; '
)


wildcard_constraints:
    arch=ARCH_PATTERN,
    op="|".join(SETTINGS.operations),
    chunk=r"\d+",


@cache
def _digest(path, modified, size):
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:16]


def digest(path):
    """Return a digest of a file's content, or a mark for one that is still to be made."""
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return "absent"
    return _digest(path, stat.st_mtime_ns, stat.st_size)


def digest_of_all(paths):
    """Return one digest of the paths and contents of many files.

    As a parameter it costs a job nothing; as inputs of each chunk's jobs, files that the workflow brings would be most
    of the graph (docs/scale.md).
    """
    made_of = "".join(f"{path} {digest(path)}\n" for path in paths)
    return hashlib.sha256(made_of.encode()).hexdigest()[:16]


@cache
def modules(name):
    """Return a digest of the package modules that the script of a stage uses."""
    script = Path(source(f"workflow/scripts/{name}.py"))
    return digest_of_all(package_modules.used_by(script, Path(source("src"))))


class Content:
    """Stands in params for the content of a file, as it is when Snakemake compares or records it.

    A value would be that of the moment when the job was planned. Jobs of a group are planned together, before the
    first of them has made the input of the second.
    """

    def __init__(self, path):
        self._path = path

    def __repr__(self):
        return repr(digest(self._path))


def content(*patterns):
    """Return a params function: the contents of the files that the patterns stand for."""
    return lambda wildcards: [
        Content(pattern.format(**wildcards)) for pattern in patterns
    ]


def made_by(stage, path, user):
    """Return an input function: what an earlier stage made for ``user``, ancient unless both are one job of a cluster.

    Snakemake weighs all jobs anew whenever one ends. In a group that runs, ancient() would take out the later stages as
    soon as the files of the earlier ones are there, and submit those once more, beside the group.
    """

    def made(wildcards):
        # The profile's groups; they are not known yet when this file is read.
        groups = workflow.group_settings.overwrite_groups
        together = stage in groups and groups[stage] == groups.get(user)
        found = path.format(**wildcards)
        return found if together else ancient(found)

    return made


@cache
def _planned(path, modified, size):
    try:
        return plan.read(Path(path))
    except UserError as error:
        raise WorkflowError(str(error)) from None


def planned(path):
    """Return the plan of the chunks: number to digest. Every job of a chunk asks for it, so it is read once."""
    stat = os.stat(path)
    return _planned(path, stat.st_mtime_ns, stat.st_size)


def chunks(wildcards):
    """Return the chunks of an arch and operation; they are known once the configs stage has run."""
    made = checkpoints.configs.get(arch=wildcards.arch, op=wildcards.op)
    return list(planned(made.output.plan))


def each_chunk(pattern):
    """Return an input function: one ancient file a chunk."""
    return lambda wildcards: [
        ancient(pattern.format(arch=wildcards.arch, op=wildcards.op, chunk=chunk))
        for chunk in chunks(wildcards)
    ]


def each_path(pattern):
    """Return a params function: the path of one file a chunk."""
    return lambda wildcards: [
        pattern.format(arch=wildcards.arch, op=wildcards.op, chunk=chunk)
        for chunk in chunks(wildcards)
    ]


def each_content(*patterns):
    """Return a params function: the contents of one file a chunk and pattern."""
    return lambda wildcards: [
        Content(pattern.format(arch=wildcards.arch, op=wildcards.op, chunk=chunk))
        for chunk in chunks(wildcards)
        for pattern in patterns
    ]


def each_operation(*patterns):
    """Return an input function: one ancient file an operation and pattern."""
    return lambda wildcards: [
        ancient(pattern.format(arch=wildcards.arch, op=op))
        for op in SETTINGS.operations
        for pattern in patterns
    ]


def each_operation_content(*patterns):
    """Return a params function: the contents of one file an operation and pattern."""
    return lambda wildcards: [
        Content(pattern.format(arch=wildcards.arch, op=op))
        for op in SETTINGS.operations
        for pattern in patterns
    ]


def product(wildcards):
    """Return the GPU product that stands for an arch; the scripts explain an empty one."""
    return SETTINGS.benchmark.products.get(wildcards.arch, "")


def stages_here():
    """Return the rules of this workflow, without those of one that uses it as a module."""
    here = Path(HERE, "workflow").resolve()
    return [rule for rule in workflow.rules if here in Path(rule.snakefile).parents]


def sources_of(stage):
    """Return the files that a stage names as inputs and no stage makes."""
    return [
        path
        for path in stage.input
        if isinstance(path, str) and not path.startswith("results/")
    ]


def record_sources():
    """Give every stage the content of its sources as a parameter: scripts, tables, templates.

    As inputs they count only if they are newer than the outputs. They are not, although changed, where results come
    out of a store that gives new time stamps, and after a clock was set back.
    """
    for stage in stages_here():
        stage.set_params(sources=digest_of_all(sources_of(stage)))


def made_from(arch, op):
    """Return the tables that a model was made from, the dataset first; a recorded arch has no other."""
    tables = [f"results/datasets/{arch}/{op}.parquet"]
    if arch not in SETTINGS.replays:
        tables += [
            f"results/problems/{op}.parquet",
            f"results/configs/{arch}/{op}.parquet",
        ]
    return tables


# Stages that run for an arch which is replayed from a recording; its models come from no other.
REPLAYING = "recorded problems model reference validation serving publish".split()


def files_read(wildcards):
    """Return the tables that the stages of an arch read and none of them made; no scripts, which are code."""
    recorded = wildcards.arch in SETTINGS.replays
    named = {
        path
        for stage in stages_here()
        if stage.name in REPLAYING or not recorded
        for path in sources_of(stage)
    }
    found = {
        path for path in named if not path.startswith(source("workflow") + "/")
    } | {f"{SETTINGS.model.prior}/{name}" for name in PRIOR}
    if recorded:
        found |= {
            path
            for op in SETTINGS.operations
            for path in recording_of(wildcards.arch, op)
        }
    return sorted(found)


def all_made_from(wildcards):
    """Return the tables of all operations."""
    return [
        path for op in SETTINGS.operations for path in made_from(wildcards.arch, op)
    ]
