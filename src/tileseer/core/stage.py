"""A stage's script is one typed function: its parameters are the options, and its outputs go through the stage store.

::

    @stage()
    def main(arch: str, settings: Settings, dataset: Input, model: Output, threads: Resource = 1) -> str:
        "Train a model."  # A line "dataset: measurements" below says what an option means.
        from tileseer.model import trainer  # Not above: a stage that is restored needs none of it.

A decorated function takes the words of a command line (``main(["--arch", "gfx950", ...])``) and gives an exit status.
It is called at once if its file is the program.
The workflow tells where the store is by its environment; a script that is run by hand computes.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tileseer.core import events, progress
from tileseer.core.cache import Cache, key, open_cache
from tileseer.core.errors import UserError, reports_user_errors
from tileseer.core.stage_store import StageStore, Unfinished, digest

Input = Path
"""A file or folder that is read."""
Output = Path
"""A file or folder that is written, whole."""
State = Path
"""A journal: it only grows, and what follows changes nothing that was read of it before."""
Place = Path
"""A folder whose contents enter by the stage's file, as far as they count."""
Settings = Mapping[str, Any]
"""Sections of the configuration: JSON, or the path of a stage's file (``tileseer.core.stage_files``)."""
Resource = int
"""What changes no result: threads, memory."""

MACHINE = "TILESEER_MACHINE"
"""Sections of the configuration that change no result, as JSON: where the cache, the locks and the compilers are."""
EXPECTED = "TILESEER_STAGE"
"""Digest of the stage's file when Snakemake planned the job."""

HELPS = {
    "settings": "sections of config.yaml as JSON, or a file of them",
    "api": "table of CK Tile names (config/ck_api.yaml)",
    "coefficients": "of the simulated device",
    "configs": "kernel table (Parquet)",
    "driver": "measuring driver, for a real GPU",
    "journal": "CSV that measurements are appended to",
    "layers": "table of layers that says the families of networks",
    "level": "level of the CK Tile API; without it, the newest",
    "modules": "kernel libraries, one a build table",
    "plan": "what each chunk holds (TSV)",
    "product": "product of the GPU in the hardware table",
    "templates": "folder of C++ templates",
    "threads": "no result depends on it",
    "training": "folder that the model stage wrote",
    "uses": "which run of a network needs which problem",
}
"""Options of several scripts. Others, and what differs, stand in the docstring of a script."""

Part = Callable[[Mapping[str, Any]], str]


def stage(**parts: Part) -> Callable[[Callable[..., str]], Callable[..., int]]:
    """Make a function the ``main`` of a script. ``parts``: of an input that counts only in part, what counts of it."""

    def decorated(function: Callable[..., str]) -> Callable[..., int]:
        name = Path(function.__code__.co_filename).stem

        @reports_user_errors
        def main(argv: Sequence[str] | None = None) -> None:
            values = vars(_parser(function).parse_args(argv))
            named, does = _named(values), (function.__doc__ or "").partition("\n")[0]
            events.tell("begin", stage=name, of=" ".join(named), does=does)
            title = " ".join([name, *named])
            with progress.never_silent(title):
                state, told = _made(name, function, values, parts)
            print(f"{title}: {told}", flush=True)
            events.tell(state, told=told)

        if function.__module__ == "__main__":
            raise SystemExit(main())
        return main

    return decorated


def _made(
    name: str, function: Callable[..., str], values: dict[str, Any], parts: Mapping[str, Part]
) -> tuple[str, str]:  # fmt: skip
    """Restore or compute the outputs; return which of both and what to say of it."""
    kinds = _kinds(function)
    text = ""
    if "settings" in values:
        text, values["settings"] = _read_settings(values["settings"])
    cache = shared_cache()
    store = StageStore(cache) if cache else None
    outputs = {option: values[option] for option, kind in kinds.items() if kind == "Output" and values[option]}
    states = [path for option, kind in kinds.items() if "State" in kind for path in _listed(values[option])]
    made_from = key(name, text, *_made_from(kinds, values, parts)) if store else ""
    if store and store.restore(made_from, outputs, states):
        return "restored", "unchanged, restored"
    told = function(**values)
    if store and not isinstance(told, Unfinished):
        store.keep(made_from, outputs, states)
    return "computed", told


def shared_cache() -> Cache | None:
    """Cache of the workflow that started this job; None if it has none or a user started the script."""
    settings = json.loads(os.environ.get(MACHINE, "{}")).get("cache")
    return open_cache(settings.get("folder"), settings["max_gib"]) if settings and settings["max_gib"] else None


def _kinds(function: Callable[..., str]) -> dict[str, str]:
    """Kind of each parameter, as the script spells it: ``Input``, ``list[Input]``, ``int``."""
    return {
        name: str(kind).removesuffix(" | None") for name, kind in function.__annotations__.items() if name != "return"
    }


def _parser(function: Callable[..., str]) -> argparse.ArgumentParser:
    description, _, rest = (function.__doc__ or "").partition("\n\n")
    helps = HELPS | dict(re.findall(r"^\s*(\w+): (.*)$", rest, re.M))
    parser = argparse.ArgumentParser(description=description)
    kinds = _kinds(function)
    defaults = function.__defaults__ or ()
    default_of = dict(zip([*kinds][len(kinds) - len(defaults) :], defaults, strict=True))
    types = {"int": int, "float": float, "str": str, "Resource": int, "Settings": str}
    for name, kind in kinds.items():
        several = kind.startswith("list[")
        element = kind.removeprefix("list[").removesuffix("]")
        given: dict[str, Any] = {"default": default_of[name]} if name in default_of else {"required": True}
        if several:
            given["nargs"] = "*" if name in default_of else "+"
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, dest=name, type=types.get(element, Path), help=helps.get(name), **given)
    return parser


def _read_settings(given: str) -> tuple[str, Settings]:
    """JSON of the option ``--settings`` and its sections; a ``UserError`` if the job was planned with another file."""
    text = given
    if not given.lstrip().startswith("{"):
        content, expected = Path(given).read_bytes(), os.environ.get(EXPECTED)
        if expected and hashlib.sha256(content).hexdigest() != expected:
            raise UserError(f"{given}: another run in this folder has changed the settings since; run again")
        text = content.decode()
    try:
        sections = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = "--settings" if given == text else f"--settings: {given}"
        raise UserError(f"{where}: this is no JSON: {error}") from error
    return text, sections.get("settings", sections)


def _made_from(kinds: Mapping[str, str], values: Mapping[str, Any], parts: Mapping[str, Part]) -> list[str]:
    """All that decides what a stage makes, besides its settings: options, paths, and contents of inputs."""
    lines = []
    for name, kind in kinds.items():
        if kind in ("Settings", "Resource", "Output"):
            continue
        for value in _listed(values[name]):
            content = ""
            if "Input" in kind:
                content = parts[name](values) if name in parts else digest(value)
            lines.append(f"{name} {value} {content}")
    return lines


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [] if value is None else [value]


def _named(values: Mapping[str, Any]) -> list[str]:
    """Arch, operation and chunk of a job, those that it has."""
    chunk = [] if values.get("chunk") is None else [f"chunk {values['chunk']}"]
    return [*(values[name] for name in ("arch", "operation") if values.get(name)), *chunk]


def commit_of_code(values: Mapping[str, Any]) -> str:
    """What counts of the workflow's folder for a record of it: the commit, and code that differs from it."""
    git = ["git", "-C", str(values["workflow"])]
    calls = (["log", "-1", "--format=%H"], ["status", "--porcelain", "--", "Snakefile", "src", "workflow"])
    return "".join(subprocess.run([*git, *call], capture_output=True, text=True).stdout for call in calls)


def chunk_of_plan(values: Mapping[str, Any]) -> str:
    """What counts of a kernel table for one chunk: the digest that the plan has of its kernels."""
    lines = (line.split("\t") for line in values["plan"].read_text().splitlines())
    return next((words[-1] for words in lines if words[0] == str(values["chunk"])), "no kernels")


def facts_of_arch(values: Mapping[str, Any]) -> str:
    """What counts of the arch specs for one arch: all but the other archs."""
    try:
        facts = json.loads(values["arch_specs"].read_text())
        facts["archs"] = {name: info for name, info in facts["archs"].items() if name == values["arch"]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return digest(values["arch_specs"])  # The stage says what is wrong.
    return json.dumps(facts, sort_keys=True)
