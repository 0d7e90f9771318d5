"""Resources of jobs as a call or a profile sets them: what Snakemake refuses while it plans, in its own words."""

import ast
import re

from tileseer.core.errors import UserError, is_it, shown

_NUMBER = r"\d+(\.\d+)?"
_KINDS = (
    ("mem|disk", rf"(?i){_NUMBER} ?([kmgtp]i?)?(b|bytes?)?", "a number of MB or a size, such as 4GB"),
    (
        "mem_mi?b|disk_mi?b|mem_mb_per_cpu",
        _NUMBER,
        "a number of MB without its unit, such as 4000; a size such as 4GB is for mem or disk",
    ),
    (
        "runtime",
        rf"(?i){_NUMBER} ?(s|sec|seconds?|m|mins?|minutes?|h|hours?|d|days?|w|weeks?)?",
        "a number of minutes, such as 120, or a time such as 2h",
    ),
    ("gpu|nodes|tasks|threads|cpus_per_(task|gpu)|tasks_per_(node|gpu)", r"\d+", "a whole number, such as 1"),
)  # fmt: skip
"""Patterns of names, of their values, and what to give."""
_NAMES = (
    "mem", "disk", "mem_mb", "mem_mib", "disk_mb", "disk_mib", "mem_mb_per_cpu", "runtime", "gpu", "gpu_model", "gres",
    "nodes", "tasks", "cpus_per_task", "slurm_partition", "slurm_account", "slurm_extra", "clusters", "constraint",
    "qos", "tmpdir",
)  # fmt: skip
"""Resources that Snakemake or its jobs on SLURM read."""


def refuse_resource(option: str, word: str) -> None:
    """Raise a ``UserError`` for a word of an option that sets resources or threads, ``[RULE:]NAME=VALUE``."""
    left, _, value = word.partition("=")
    name = "threads" if option == "--set-threads" else left.rpartition(":")[2]
    for names, values, such in _KINDS:
        if re.fullmatch(names, name) and not re.fullmatch(values, value.strip("'\"")) and not _is_computed(value):
            raise UserError(f"{option}: {left}: {shown(value)}: give {such}")
    # Others may be limits of one's own, or words of a command that submits.
    if near := is_it(name, _NAMES, 0.65) if name not in (*_NAMES, "threads") else "":
        raise UserError(f"{option}: {left}: neither Snakemake nor SLURM knows the resource {name}{near}")


def _is_computed(value: str) -> bool:
    """Return whether a value is an expression, such as ``4000 * attempt``."""
    try:
        return not isinstance(ast.parse(value, mode="eval").body, ast.Name | ast.Constant | ast.UnaryOp)
    except (SyntaxError, ValueError):
        return False
