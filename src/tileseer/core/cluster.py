"""What a SLURM cluster says to the jobs of a profile, asked before the first one is submitted.

Without it each job fails by itself, or waits for ever, for a name that the site does not have.
"""

import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

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
_LATER = "down, drained or reserved"
"""What sbatch would take and start when the nodes are back."""
_HELP = "change slurm_partition, slurm_account and the others in the config.yaml of the profile (docs/cluster.md)"


def refusal(jobs: Iterable[tuple[str, Mapping[str, Any]]], user: str, *, real_gpu: bool) -> str:
    """What to say of jobs, rules with their resources, that the cluster would not take; empty if it takes all."""
    if shutil.which("sbatch") is None:
        return (
            "executor: there is no sbatch on this machine; start Snakemake where jobs are submitted from, "
            "or leave out --workflow-profile"
        )
    rules: dict[tuple[str, ...], set[str]] = {}
    faults = []
    for rule, resources in sorted(jobs, key=lambda job: job[0]):
        if rule in ("benchmark", "active") and (fault := _gpu_fault(resources, real_gpu)):
            faults.append(f"{rule}: {fault}")
        options = [f"--{option}={resources[name]}" for name, option in OPTIONS.items() if resources.get(name)]
        rules.setdefault((*options, *shlex.split(str(resources.get("slurm_extra", "")))), set()).add(rule)
    for words, asking in rules.items():
        asked = _ask("sbatch", "--test-only", "--output=/dev/null", *words, "--wrap=true")
        if asked.returncode and _LATER not in asked.stderr:
            reason = " ".join(asked.stderr.replace("sbatch: error: ", "").split())
            faults.append(f"{', '.join(sorted(asking))}: sbatch {' '.join(words)}: {reason}")
    if not faults:
        return ""
    lists = {"partitions": told("sinfo", "--noheader", "--format=%R"), "your accounts": accounts(user)}
    known = [f"{what}: {', '.join(sorted(set(names)))}" for what, names in lists.items() if names]
    return "\n  ".join(["the cluster refuses jobs; " + _HELP, *dict.fromkeys(faults), *known])


def _gpu_fault(resources: Mapping[str, Any], real_gpu: bool) -> str:
    given = {name: resources.get(name) for name in ("gres", "gpu")}
    asked = [f"{name}: {value}" for name, value in given.items() if value and "gpu" in f"{name}{value}"]
    if len(asked) > 1:
        return f"{' and '.join(asked)} both ask for GPUs; keep the one that the site takes"
    if real_gpu and not asked:
        return "it measures on a GPU and asks for none; set gres: gpu:1 or gpu: 1"
    return ""


def _ask(*command: str, timeout_s: float = TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer within {timeout_s:.0f} s")


def accounts(user: str, timeout_s: float = TIMEOUT_S) -> list[str] | None:
    """Accounts that a user's jobs may be billed to; None where the cluster keeps none."""
    command = ("sacctmgr", "--noheader", "--parsable2", "show", "associations", f"user={user}", "format=account")
    return told(*command, timeout_s=timeout_s)


def told(*command: str, timeout_s: float = TIMEOUT_S) -> list[str] | None:
    """Words that a program prints; None if it is missing, fails or hangs."""
    try:
        done = _ask(*command, timeout_s=timeout_s)
    except OSError:
        return None
    return None if done.returncode else done.stdout.split()
