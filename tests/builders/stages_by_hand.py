"""The stages of a workflow that has run, to run one by one."""

from __future__ import annotations

import base64
import json
import re
import runpy
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from repository import ROOT


@dataclass(frozen=True)
class Stage:
    """One job of the undisturbed run, the files that it read, and its outputs, the journals included."""

    name: str
    words: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def run(self) -> int:
        """Run it in the current folder and in this process."""
        return main_of(self.name)(list(self.words[1:]))


@cache
def main_of(script: str) -> Callable[[list[str]], int]:
    """Return the function of a script."""
    return runpy.run_path(str(ROOT / f"workflow/scripts/{script}.py"))["main"]


def stages_of(folder: Path) -> list[Stage]:
    """Return the jobs that Snakemake recorded, of each rule the first."""
    records = folder / ".snakemake/metadata"
    jobs: dict[str, tuple[dict, list[str]]] = {}
    for path in sorted(path for path in records.rglob("*") if path.is_file()):
        record = json.loads(path.read_text())
        if record.get("shellcmd"):
            encoded = "".join(part.removeprefix("@") for part in path.relative_to(records).parts)
            output = base64.urlsafe_b64decode(encoded).decode()
            jobs.setdefault(record["shellcmd"], (record, []))[1].append(output)
    stages: dict[str, Stage] = {}
    for command, (record, outputs) in sorted(jobs.items()):
        words = shlex.split(re.split(r" 2>&1| > ", command)[0])
        words = words[words.index("python") + 1 :]
        rule, inputs = record["rule"], tuple(dict.fromkeys(record["input"]))
        journals = [word for word in words if word.startswith("results/journals/")] if rule == "benchmark" else []
        stages.setdefault(rule, Stage(rule, tuple(words), inputs, (*sorted(outputs), *journals)))
    return [*stages.values()]
