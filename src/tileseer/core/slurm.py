"""What a SLURM cluster says to the jobs of a profile, asked before the first one is submitted.

Without it each job fails by itself, or waits for ever, for a name that the site does not have.
"""

import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tileseer.core.errors import UserError

TIMEOUT_S = 60.0
OPTIONS = {
    "slurm_account": "account",
    "slurm_partition": "partition",
    "gres": "gres",
    "gpu": "gpus",
    "mem_mb": "mem",
    "runtime": "time",
    "qos": "qos",
    "constraint": "constraint",
}
"""Resources of Snakemake, by the option of sbatch that they become."""
PARTITIONS = ("sinfo", "--noheader", "--format=%R")
ACCOUNTS = ("sacctmgr", "--noheader", "--parsable2", "show", "associations", "format=account")
_LATER = "down, drained or reserved"
"""What sbatch would take and start when the nodes are back."""
_HELP = "change slurm_partition, slurm_account and the others in the config.yaml of the profile (docs/cluster.md)"


class ClusterJob(NamedTuple):
    """A job of a rule, with the resources that the rule and the profile give it."""

    rule: str
    group: str | None
    """Jobs of one group are submitted as one."""
    resources: Mapping[str, Any]


def refuse_jobs(jobs: Iterable[ClusterJob], user: str, *, real_gpu: bool) -> None:
    """``UserError`` with all that the cluster would refuse of the jobs, asked once for each group or rule.

    ``real_gpu``: whether a job that has the resource ``gpu`` needs one.
    """
    if shutil.which("sbatch") is None:
        raise UserError(
            "executor: there is no sbatch on this machine; start Snakemake where jobs are submitted from, "
            "or leave out --workflow-profile"
        )
    submissions: dict[str, dict[str, Mapping[str, Any]]] = {}
    for job in jobs:
        submissions.setdefault(job.group or job.rule, {})[job.rule] = job.resources
    faults, rules_of = [], dict[tuple[str, ...], set[str]]()
    for rules in submissions.values():
        own = {rule: _gpu_fault(resources, real_gpu) for rule, resources in rules.items()}
        faults += [f"{rule}: {fault}" for rule, fault in own.items() if fault]
        rules_of.setdefault(_words([*rules.values()]), set()).update(rules)
    for words, named in rules_of.items():
        answer = _run("sbatch", "--test-only", "--output=/dev/null", *words, "--wrap=true")
        if answer.returncode and _LATER not in answer.stderr:
            reason = " ".join(answer.stderr.replace("sbatch: error: ", "").split())
            faults.append(f"{', '.join(sorted(named))}: sbatch {' '.join(words)}: {reason}")
    if faults:
        questions = {"partitions": PARTITIONS, "your accounts": (*ACCOUNTS, f"user={user}")}
        lists = {what: words_of(*question) for what, question in questions.items()}
        available = [f"{what}: {', '.join(sorted(set(names)))}" for what, names in lists.items() if names]
        raise UserError("\n  ".join(["the cluster refuses jobs; " + _HELP, *dict.fromkeys(faults), *available]))


def _words(rules: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Options of sbatch for rules that run one after another in one job: their times add up, the rest is the most."""
    words = []
    for name, option in OPTIONS.items():
        if values := [resources[name] for resources in rules if resources.get(name)]:
            words.append(f"--{option}={sum(values) if name == 'runtime' else max(values)}")
    extra = dict.fromkeys(str(resources.get("slurm_extra", "")) for resources in rules)
    return (*words, *(word for text in extra for word in shlex.split(text)))


def _gpu_fault(resources: Mapping[str, Any], real_gpu: bool) -> str:
    """What is wrong with how a job that measures asks for its GPU; empty if nothing is."""
    values = {name: resources.get(name) for name in ("gres", "gpu")}
    requests = [f"{name}: {value}" for name, value in values.items() if value and "gpu" in f"{name}{value}"]
    if "gpu" in resources and len(requests) > 1:
        return f"{' and '.join(requests)} both ask for GPUs; keep the one that the site takes"
    if "gpu" in resources and real_gpu and not requests:
        return "it measures on a GPU and asks for none; set gres: gpu:1 or gpu: 1"
    return ""


def _run(*command: str, timeout_s: float = TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer within {timeout_s:.0f} s")


def words_of(*command: str, timeout_s: float = TIMEOUT_S) -> list[str] | None:
    """Words that a program prints; None if it is missing, fails or hangs."""
    try:
        done = _run(*command, timeout_s=timeout_s)
    except OSError:
        return None
    return None if done.returncode else done.stdout.split()
