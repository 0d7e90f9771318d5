"""A stage's script is one typed function: its parameters are the options of a command line.

::

    @stage_script
    def main(arch: str, settings: Settings, dataset: Path, model: Path, threads: int = 1) -> str:
        "Train a model."  # A line "dataset: measurements" below says what an option means.
        from tileseer.learn import fit  # Not above: --help needs none of it.

A decorated function takes the words of a command line (``main(["--arch", "gfx950", ...])``) and gives an exit status.
It is called at once if its file is the program. Every script takes the options that name its job (``JOB``) as well.
"""

import argparse
import gc
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, get_args, get_origin

from tileseer.core.errors import UserError, reports_user_errors
from tileseer.core.reruns import checked_job

Settings = Mapping[str, Any]
"""Sections of the configuration."""

OBJECTS_BETWEEN_COLLECTIONS = 100_000
JOB = {"arch": str, "operation": str, "chunk": int}
"""Options of every script, for its last line; a function has those that it needs as parameters."""
OF_THE_RUN = {"code": str, "inputs": list[Path]}
"""Options of every script, for what its run found: digest of the stage's code, and the files that the rule names."""

HELPS = {
    "settings": "sections of config.yaml as JSON; fields of a later word are added to the sections of an earlier one",
    "code": "digest of the stage's code, which is compared with that of the files here",
    "inputs": "files that must not change meanwhile",
    "api": "table of CK Tile names (config/ck_api.yaml)",
    "coefficients": "of the simulated device",
    "configs": "kernel table (Parquet)",
    "driver": "measuring driver, for a real GPU",
    "evaluation": "of the picks that ship; of several, in any order",
    "hardware": "table of GPU products",
    "headers": "bundle of the chunk",
    "journal": "CSV that measurements are appended to",
    "level": "level of the CK Tile API; without it, the newest",
    "module": "library of kernels, for a real GPU",
    "native": "folder of driver and launchers (workflow/native)",
    "product": "product of the GPU in the hardware table",
    "templates": "folder of C++ templates",
    "threads": "no result depends on it",
    "training": "folder that the model stage wrote, or several in any order",
    "uses": "which run of a network needs which problem",
    "workflow": "folder of the Snakefile, to name its commit",
}
"""Options of several scripts. Others, and what differs, are explained in the docstring of a script."""


def stage_script(function: Callable[..., str]) -> Callable[..., int]:
    """Make a function the ``main`` of a script."""

    @reports_user_errors
    def main(argv: Sequence[str] | None = None) -> None:
        # Threads that wait must leave the cores to others: spinning, they cost more than they bring.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        values = vars(_parser(function).parse_args(argv))
        code, inputs = (values.pop(name) for name in OF_THE_RUN)
        job = {name: values.pop(name) if name not in function.__annotations__ else values[name] for name in JOB}
        subject = [job["arch"], job["operation"], job["chunk"] is not None and f"chunk {job['chunk']}"]
        if "settings" in values:
            values["settings"] = _merged(values["settings"])
        stage = Path(function.__code__.co_filename).stem
        with checked_job(stage, code, inputs) if code else nullcontext():
            message = function(**values)
        # The view of a run shows this last line of the log.
        print(f"{' '.join([stage, *filter(None, subject)])}: {message}", flush=True)

    if function.__module__ == "__main__":
        # Collections while it imports, and taking all modules apart at the end, are a third of a short job.
        gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
        if status := main():
            raise SystemExit(status)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return main


def _merged(words: Sequence[str]) -> dict[str, Any]:
    """Return the sections that JSON words hold; a ``UserError`` names a word that is none."""
    merged: dict[str, Any] = {}
    for word in words:
        try:
            sections = json.loads(word)
        except (ValueError, RecursionError) as error:
            raise UserError(f"--settings: {word}: this is no JSON: {error}") from error
        for name, section in sections.items():
            merged[name] = {**merged.get(name, {}), **section} if isinstance(section, dict) else section
    return merged


def _parser(function: Callable[..., str]) -> argparse.ArgumentParser:
    """Return a parser with an option per parameter.

    One with a default may come without a value, as an empty list of a rule does.
    """
    description, _, rest = (function.__doc__ or "").partition("\n\n")
    helps = HELPS | dict(re.findall(r"^\s*(\w+): (.*)$", rest, re.M))
    parser = argparse.ArgumentParser(description=description)
    own = {name: annotation for name, annotation in function.__annotations__.items() if name != "return"}
    default_of = dict(zip(reversed(own), reversed(function.__defaults__ or ()), strict=False))
    default_of |= dict.fromkeys(JOB.keys() - own.keys()) | {"settings": ["{}"], "code": "", "inputs": []}
    for name, annotation in (JOB | OF_THE_RUN | own).items():
        kind = get_args(annotation)[0] if type(None) in get_args(annotation) else annotation
        several = name == "settings" or get_origin(kind) is list
        kind = str if name == "settings" else get_args(kind)[0] if several else kind
        more: dict[str, Any] = {"required": True, "nargs": "+" if several else None}
        if name in default_of:
            more = {"default": default_of[name], "nargs": "*" if several else "?"}
            more |= {} if several else {"const": default_of[name]}
        parser.add_argument("--" + name.replace("_", "-"), dest=name, type=kind, help=helps.get(name), **more)
    return parser
