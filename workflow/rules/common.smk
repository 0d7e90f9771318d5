# What all rules share: the checked configuration, how a job begins, and what decides besides files whether it runs again.
import json
import os
import re
import shlex
import sys
import warnings
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.io import is_flagged
from tileseer.build import registration, source_trees
from tileseer.cli import preflight
from tileseer.cli.run_words import ARCH_OF_RUN
from tileseer.facts.compile import SECTIONS_OF_LIBRARIES
from tileseer.facts.config import check
from tileseer.facts.names import ARCH_PATTERN
from tileseer.facts.operations import OPERATION_PATTERN, OPERATIONS
from tileseer.core import errors, places
from tileseer.core.code_digest import STAGES
from tileseer.core.reruns import RECORD, Run

# The folder of this workflow, seen from the working folder: "." unless it is somebody else's.
HERE = os.path.relpath(places.workflow_folder())


def outside(path):
    """Path of a file that no stage makes. What it says counts (`tables`), and not its time of change."""
    return local(ancient(Path(path).as_posix()))


def source(path):
    """Path of a file of this workflow."""
    return outside(Path(HERE, path))


# Snakemake asks for sizes of inputs, for resources, and does not wait for the answer.
warnings.filterwarnings("ignore", "coroutine 'InputFiles", RuntimeWarning)
# Jobs import this package, also where it is not installed.
os.environ |= {"PYTHONPATH": ":".join(filter(None, [str(places.PACKAGE.parent), os.environ.get("PYTHONPATH")]))}
# Jobs run side by side: the threads of each are those of its rule, also of a product of matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
SCRIPTS = shlex.quote(source("workflow/scripts"))
# What each job compares: the code that it is to be made by, and its inputs, which must not change meanwhile.
CHECKED = "--code {params.code} --inputs {input:q}"
RUN = Run()
# An input of all jobs, which is new where Snakemake has no record of results/. So these are made again.
RECORD_OF_RUN = local(RECORD.as_posix())
# Params name these folders by functions: plain text would be the prefix of a file to --lint.
NATIVE, TEMPLATES = source("workflow/native"), source("workflow/templates")
RULE_SETS = source("config/rule_sets")
NATIVE_SOURCES = [outside(path) for path in sorted(Path(NATIVE).glob("*.[ch]*"))]
COEFFICIENTS = source("config/simulated_device.yaml")
API = source("config/ck_api.yaml")

try:
    places.refuse_braces(os.path.abspath(HERE))
    SETTINGS = check(config).located(HERE)
    # The arch that is checked: its name changes no result.
    ASKED = SETTINGS.model_copy(update={"arch": os.environ.get(ARCH_OF_RUN, SETTINGS.arch)})
    preflight.refuse_faults(ASKED, Path(RULE_SETS), Path(COEFFICIENTS), Path(API))
    # What compiled kernels depend on outside of this folder.
    ROOTS = {name: getattr(SETTINGS, name).root for name in SECTIONS_OF_LIBRARIES}
    TOOLCHAIN = registration.fingerprint(SETTINGS.compile, ROOTS)
    CK_LEVEL = source_trees.ck_level(SETTINGS.ck, Path(API), compiles=SETTINGS.compile.toolchain == "hipcc")
except UserError as error:
    print(errors.lines_of(error), file=sys.stderr)
    raise SystemExit(2) from None

HARDWARE = outside(SETTINGS.hardware)
PORTABLE = SETTINGS.portable()
CHUNKS = range(SETTINGS.configs.chunks)
DEVICE = SETTINGS.benchmark.device
COMPILES = SETTINGS.compile.toolchain != "none"
EMULATED = DEVICE == "emulated"
# Kernels run as machine code, so there are libraries of them; on a real GPU they are timed.
LINKED = DEVICE in ("cuda", "hip", "emulated")
MEASURED = LINKED and not EMULATED


wildcard_constraints:
    arch=ARCH_PATTERN,
    operation=OPERATION_PATTERN,
    chunk=r"\d+",


# Snakemake runs a job again if a value of its params differs from that of its last run.
def settings(stage):
    """The sections of the configuration that a stage reads, as JSON."""
    return json.dumps({name: PORTABLE[name] for name in STAGES[stage].sections})


def code(stage):
    """Digest of the code of a stage, from its syntax: a comment changes nothing."""
    return RUN.code(stage)


def tables(*paths):
    """Digest of what those of these files say that no stage makes: a comment changes nothing."""
    return RUN.tables(path for path in paths if is_flagged(path, "ancient"))


def machine(wildcards, threads):
    """Sections that only say where things are on this machine, as JSON.

    Snakemake does not compare what a function makes that asks for threads.
    """
    return json.dumps(SETTINGS.of_the_machine())


def each_chunk(pattern):
    """One file per chunk."""
    return expand(pattern, chunk=CHUNKS, allow_missing=True)
