"""A stage's script is one typed function: its parameters are the options, and its outputs go through the stage store.

::

    @stage_script()
    def main(arch: str, settings: Settings, dataset: Input, model: Output, threads: Resource = 1) -> str:
        "Train a model."  # A line "dataset: measurements" below says what an option means.
        from tileseer.learn import fit  # Not above: a stage that is restored needs none of it.

A decorated function takes the words of a command line (``main(["--arch", "gfx950", ...])``) and gives an exit status.
It is called at once if its file is the program.
The workflow tells by the environment where the store is; a script that is run by hand computes.
"""

import argparse
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tileseer.core import code_digest
from tileseer.core.cache import Cache, key, open_cache
from tileseer.core.errors import UserError, reports_user_errors
from tileseer.core.stage_store import StageStore, Unfinished, digest

Input = Path
"""A file or folder that is read; of YAML what it means, so that a comment changes nothing."""
Output = Path
"""A file or folder that is written, whole."""
Journal = Path
"""A file that only grows; a new line changes nothing of what was read before it."""
Folder = Path
"""A folder of which the files count that the stage's file lists under ``reads``."""
Settings = Mapping[str, Any]
"""Sections of the configuration: JSON, or the path of a stage's file (``tileseer.core.stage_file``)."""
Resource = int
"""What changes no result: threads, memory."""

RUN = "TILESEER_RUN"
"""What a run of the workflow tells its jobs, as JSON: see ``RunEnvironment``."""
KEYS = "keys of the stage store, 2"
"""Part of every key: entries of an earlier form are not read."""

HELPS = {
    "settings": "sections of config.yaml as JSON, or a file of them",
    "api": "table of CK Tile names (config/ck_api.yaml)",
    "coefficients": "of the simulated device",
    "configs": "kernel table (Parquet)",
    "driver": "measuring driver, for a real GPU",
    "journal": "CSV that measurements are appended to",
    "layers": "table of layers that says the families of networks",
    "level": "level of the CK Tile API; without it, the newest",
    "modules": "kernel libraries, one per build table",
    "plan": "what each chunk holds (TSV)",
    "product": "product of the GPU in the hardware table",
    "templates": "folder of C++ templates",
    "threads": "no result depends on it",
    "training": "folder that the model stage wrote",
    "uses": "which run of a network needs which problem",
}
"""Options of several scripts. Others, and what differs, are explained in the docstring of a script."""

Part = Callable[[Mapping[str, Any]], str]
DEEPEST_YAML = 100


class RunEnvironment(NamedTuple):
    """What a run of the workflow tells its jobs."""

    machine: dict[str, Any]
    """Sections of the configuration that change no result: where the cache, the locks and the compilers are."""
    code: dict[str, str]
    """What the file system said of the code of each stage when the run was planned (``state_of_files``)."""

    @classmethod
    def read(cls) -> "RunEnvironment":
        """That of the run that started this job; empty if a user started it."""
        return cls(**json.loads(os.environ.get(RUN, '{"machine": {}, "code": {}}')))

    def text(self) -> str:
        """The value of the variable ``RUN``."""
        return json.dumps(self._asdict(), sort_keys=True)


def stage_script(stored: bool = True, **parts: Part) -> Callable[[Callable[..., str]], Callable[..., int]]:
    """Make a function the ``main`` of a script.

    ``stored``: whether outputs are kept and restored. ``parts``: of an input that counts only in part, what counts.
    """

    def decorated(function: Callable[..., str]) -> Callable[..., int]:
        script = Path(function.__code__.co_filename)

        @reports_user_errors
        def main(argv: Sequence[str] | None = None) -> None:
            values = vars(_parser(function).parse_args(argv))
            message = _run(script, function, values, parts, stored)
            # The view of a run shows this last line of the log, and counts those that say "unchanged, restored".
            print(f"{' '.join([script.stem, *_subject(values)])}: {message}", flush=True)

        if function.__module__ == "__main__":
            raise SystemExit(main())
        return main

    return decorated


def shared_cache() -> Cache | None:
    """Cache of the workflow that started this job; None if it has none or a user started the script."""
    settings = RunEnvironment.read().machine.get("cache")
    return open_cache(settings.get("folder"), settings["max_gib"]) if settings and settings["max_gib"] else None


def _run(
    script: Path, function: Callable[..., str], values: dict[str, Any], parts: Mapping[str, Part], stored: bool
) -> str:
    """Restore or compute the outputs; what to say of it."""
    plan = _Plan.read(script, values)
    if "settings" in values:
        values["settings"] = plan.settings
    plan.check()
    kinds = _kinds(function)
    cache = shared_cache() if stored else None
    if cache is None:
        message = function(**values)
        plan.check()
        return message
    store = StageStore(cache)
    outputs = {option: values[option] for option, kind in kinds.items() if kind == "Output" and values[option]}
    journals = [path for option, kind in kinds.items() if "Journal" in kind for path in _listed(values[option])]
    inputs = _Inputs(kinds, values, parts)
    made_from = key(KEYS, script.stem, plan.text, *inputs.lines)
    if store.restore(made_from, outputs, journals):
        return "unchanged, restored"
    message = function(**values)
    plan.check()
    inputs.check()
    if not isinstance(message, Unfinished):
        store.keep(made_from, outputs, journals)
    return message


class _Plan:
    """The stage's file, and whether the code and the tables that it names are still those of the plan."""

    def __init__(self, script: Path, text: str, content: Mapping[str, Any]) -> None:
        self.text = text
        self.settings: Settings = content.get("settings", content)
        self._modules: Mapping[str, str] = content.get("modules", {})
        self._reads: Mapping[str, str] = content.get("facts", {}).get("reads", {}) if self._modules else {}
        self._script = script
        # What the file system says of the code, as the run or this job saw it first: far cheaper than its syntax.
        self._state = RunEnvironment.read().code.get(script.stem, "")

    @classmethod
    def read(cls, script: Path, values: Mapping[str, Any]) -> "_Plan":
        """That of the option ``--settings``: JSON, or the path of a stage's file."""
        text = value = values.get("settings", "{}")
        if not value.lstrip().startswith("{"):
            text = Path(value).read_text()
        try:
            return cls(script, text, json.loads(text))
        except (ValueError, RecursionError) as error:
            where = "--settings" if value == text else f"--settings: {value}"
            raise UserError(f"{where}: this is no JSON: {error}") from error

    def check(self) -> None:
        """Raise a ``UserError`` if code or a table is not what the run was planned with."""
        if not self._modules:
            return
        for path, planned in self._reads.items():
            if digest(Path(path)) != planned:
                raise _changed(path)
        state = code_digest.state_of_files(
            code_digest.path_of_module(name, self._script) for name in sorted(self._modules)
        )
        if state != self._state:
            # Touched, or seen by another machine: the syntax decides.
            now = code_digest.code_now(self._script).modules
            for name in sorted(now.keys() | self._modules.keys()):
                if now.get(name) != self._modules.get(name):
                    raise _changed(str(code_digest.path_of_module(name, self._script)))
            self._state = state


class _Inputs:
    """Options and contents of inputs: all that decides what a stage makes, besides its settings and code."""

    def __init__(self, kinds: Mapping[str, str], values: Mapping[str, Any], parts: Mapping[str, Part]) -> None:
        self._contents = {
            (name, value): parts.get(name)
            for name, kind in kinds.items()
            if kind not in ("Settings", "Resource", "Output")
            for value in _listed(values[name])
        }
        self._kinds, self._values = kinds, values
        self._state = self._state_now()
        self.lines = [*self._described()]

    def _described(self) -> Iterator[str]:
        for (name, value), part in self._contents.items():
            content = ""
            if "Input" in self._kinds[name]:
                content = part(self._values) if part else content_digest(value)
            yield f"{name} {value} {content}"

    def _state_now(self) -> str:
        files = [value for name, value in self._contents if "Input" in self._kinds[name] and value.is_file()]
        return code_digest.state_of_files(files)

    def check(self) -> None:
        """Raise a ``UserError`` if an input was changed since it was read."""
        if self._state_now() != self._state:
            for before, now, (_, value) in zip(self.lines, self._described(), self._contents, strict=True):
                if before != now:
                    raise _changed(str(value))


def _changed(path: str) -> UserError:
    return UserError(f"{path}: changed since the run was planned; run again")


def content_digest(path: Path) -> str:
    """Digest of what a file or folder means: of YAML its values, of all else its bytes."""
    if path.suffix in (".yaml", ".yml") and path.is_file():
        content = _yaml_values(path)
        if content is not None:
            return key(json.dumps(content))
    return digest(path)


def _yaml_values(path: Path) -> Any:
    """Content of a YAML file that is plain values; None for any other, of which the stage says what is wrong."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    try:
        text = path.read_bytes()
        for event in yaml.parse(text, loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST_YAML or isinstance(event, yaml.AliasEvent):
                return None  # The parser in C crashes on deep nesting, and aliases may stand for any size.
        content = yaml.load(text, loader)
        json.dumps(content)
        return content
    except (yaml.YAMLError, ValueError, TypeError):
        return None


def _kinds(function: Callable[..., str]) -> dict[str, str]:
    """Kind of each parameter, as the script spells it: ``Input``, ``list[Input]``, ``int``."""
    return {
        name: str(kind).removesuffix(" | None") for name, kind in function.__annotations__.items() if name != "return"
    }


def _parser(function: Callable[..., str]) -> argparse.ArgumentParser:
    """An option per parameter; one with a default may come without a value, as an empty list of a rule does."""
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
        optional = name in default_of
        more: dict[str, Any] = {"default": default_of[name]} if optional else {"required": True}
        if several:
            more["nargs"] = "*" if optional else "+"
        elif optional:
            more |= {"nargs": "?", "const": default_of[name]}
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, dest=name, type=types.get(element, Path), help=helps.get(name), **more)
    return parser


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [] if value is None else [value]


def _subject(values: Mapping[str, Any]) -> list[str]:
    """Arch, operation and chunk of a job, those that it has."""
    chunk = [] if values.get("chunk") is None else [f"chunk {values['chunk']}"]
    return [*(values[name] for name in ("arch", "operation") if values.get(name)), *chunk]


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


def row_of_product(values: Mapping[str, Any]) -> str:
    """What counts of the hardware table for one product: its row."""
    content = _yaml_values(values["hardware"])
    try:
        return json.dumps(content["products"][values["product"]], sort_keys=True)
    except (KeyError, TypeError):
        return digest(values["hardware"])  # The stage says what is wrong.
