"""A stage's script is one typed function: its parameters are the options, and its outputs go through the stage store.

::

    @stage_script()
    def main(arch: str, settings: Settings, dataset: Input, model: Output, threads: Resource = 1) -> str:
        "Train a model."  # A line "dataset: measurements" below says what an option means.
        from tileseer.learn import fit  # Not above: a stage that is restored needs none of it.

A decorated function takes the words of a command line (``main(["--arch", "gfx950", ...])``) and gives an exit status.
It is called at once if its file is the program. Every script takes the options that name its job (``JOB``) as well.
The workflow tells by the environment where the store is; a script that is run by hand computes.
"""

import argparse
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from tileseer.core import code_digest
from tileseer.core.cache import Cache, key, open_cache
from tileseer.core.errors import UserError, reports_user_errors
from tileseer.core.stage_store import StageStore, Unfinished, digest

Input = Annotated[Path, "input"]
"""A file or folder that is read; of YAML what it means, so that a comment changes nothing."""
Output = Annotated[Path, "output"]
"""A file or folder that is written, whole."""
Journal = Annotated[Path, "journal"]
"""A file that only grows; a new line changes nothing of what was read before it."""
Folder = Annotated[Path, "folder"]
"""A folder of which the files count that the stage's file lists under ``reads``."""
Settings = Annotated[Mapping[str, Any], "settings"]
"""Sections of the configuration: JSON, or the path of a stage's file (``tileseer.core.stage_file``)."""
Resource = Annotated[int, "resource"]
"""What changes no result: threads, memory."""

RUN = "TILESEER_RUN"
"""What a run of the workflow tells its jobs, as JSON: see ``RunEnvironment``."""
KEYS = "keys of the stage store, 3"
"""Part of every key: entries of an earlier form are not read."""
JOB: dict[str, Any] = {"arch": str, "operation": str, "chunk": int, "settings": Settings}
"""Options of every script, for its last line; a function has those that it needs as parameters."""

HELPS = {
    "settings": "sections of config.yaml as JSON, or a file of them",
    "api": "table of CK Tile names (config/ck_api.yaml)",
    "coefficients": "of the simulated device",
    "configs": "kernel table (Parquet)",
    "driver": "measuring driver, for a real GPU",
    "journal": "CSV that measurements are appended to",
    "layers": "table of layers with the families of networks",
    "level": "level of the CK Tile API; without it, the newest",
    "modules": "kernel libraries, one per build table",
    "plan": "the content of each chunk (TSV)",
    "product": "product of the GPU in the hardware table",
    "templates": "folder of C++ templates",
    "threads": "no result depends on it",
    "training": "folder that the model stage wrote",
    "uses": "which run of a network needs which problem",
}
"""Options of several scripts. Others, and what differs, are explained in the docstring of a script."""

Part = Callable[[Mapping[str, Any]], str]


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
        @reports_user_errors
        def main(argv: Sequence[str] | None = None) -> None:
            values = vars(_parser(function).parse_args(argv))
            call = _Call(function, values, parts)
            subject = [values["arch"], values["operation"], values["chunk"] is not None and f"chunk {values['chunk']}"]
            message = call.run(shared_cache() if stored else None)
            # The view of a run shows this last line of the log, and counts those that say "unchanged, restored".
            print(f"{' '.join([call.stage, *filter(None, subject)])}: {message}", flush=True)

        if function.__module__ == "__main__":
            raise SystemExit(main())
        return main

    return decorated


def shared_cache() -> Cache | None:
    """Cache of the workflow that started this job; None if it has none or a user started the script."""
    settings = RunEnvironment.read().machine.get("cache")
    return open_cache(settings.get("folder"), settings["max_gib"]) if settings and settings["max_gib"] else None


class _Call:
    """One call of a script: restores or computes its outputs."""

    def __init__(self, function: Callable[..., str], values: dict[str, Any], parts: Mapping[str, Part]) -> None:
        self._function, self._parts = function, parts
        self._script = Path(function.__code__.co_filename)
        self.stage = self._script.stem
        self._text, self._plan = _read_plan(values["settings"])
        self._values = values | {"settings": self._plan.get("settings", self._plan)}
        self._kinds = {name: _Parameter.of(annotation) for name, annotation in _annotations(function).items()}

    def run(self, cache: Cache | None) -> str:
        """Restore or compute the outputs; what to say of it."""
        self._check_plan()
        if cache is None:
            return self._compute()
        store = StageStore(cache)
        outputs = dict(self._of_kinds("output"))
        journals = [path for _, path in self._of_kinds("journal")]
        inputs = [*self._inputs()]
        made_from = key(KEYS, self.stage, self._text, *(f"{name} {value} {content}" for name, value, content in inputs))
        if store.restore(made_from, outputs, journals):
            return "unchanged, restored"
        message = self._compute()
        for before, now in zip(inputs, self._inputs(), strict=True):
            if before != now:
                raise _changed(now[1])
        if not isinstance(message, Unfinished):
            store.keep(made_from, outputs, journals)
        return message

    def _compute(self) -> str:
        message = self._function(**{name: self._values[name] for name in self._kinds})
        self._check_plan()
        return message

    def _of_kinds(self, *words: str) -> Iterator[tuple[str, Any]]:
        """Options of these kinds with their values, one by one."""
        for name, kind in self._kinds.items():
            value = self._values[name]
            if kind.word in words:
                yield from ((name, each) for each in (value if kind.several else [] if value is None else [value]))

    def _inputs(self) -> Iterator[tuple[str, Any, str]]:
        """All that decides what a stage makes, besides its settings and code: options, and contents of inputs."""
        for name, value in self._of_kinds("", "folder", "journal"):
            yield name, value, ""
        for name, path in self._of_kinds("input"):
            yield name, path, self._parts[name](self._values) if name in self._parts else content_digest(path)

    def _check_plan(self) -> None:
        """Raise a ``UserError`` if code or a table is not what the run was planned with."""
        modules = self._plan.get("modules", {})
        if not modules:
            return
        for path, planned in self._plan["facts"].get("reads", {}).items():
            if digest(Path(path)) != planned:
                raise _changed(path)
        files = {name: code_digest.path_of_module(name, self._script) for name in sorted(modules)}
        # What the file system says of the code: far cheaper than its syntax.
        if code_digest.state_of_files(files.values()) == RunEnvironment.read().code.get(self.stage):
            return
        # Touched, or seen by another machine: the syntax decides.
        now = code_digest.code_now(self._script).modules
        for name in sorted(now.keys() | modules.keys()):
            if now.get(name) != modules.get(name):
                raise _changed(code_digest.path_of_module(name, self._script))


def _read_plan(value: str) -> tuple[str, Mapping[str, Any]]:
    """Text and content of the option ``--settings``: JSON, or the path of a stage's file."""
    inline = value.lstrip().startswith("{")
    text = value if inline else Path(value).read_text(encoding="utf-8")
    try:
        return text, json.loads(text)
    except (ValueError, RecursionError) as error:
        where = "--settings" if inline else f"--settings: {value}"
        raise UserError(f"{where}: this is no JSON: {error}") from error


def _changed(path: object) -> UserError:
    return UserError(f"{path}: changed since the run was planned; run again")


def content_digest(path: Path) -> str:
    """Digest of what a file or folder means: of YAML its values, of all else its bytes."""
    if path.suffix in (".yaml", ".yml") and path.is_file():
        from tileseer.core.yaml_files import read_yaml  # Not above: few jobs have YAML to read.

        # A table that cannot be read or is no plain values counts by its bytes: the stage says what is wrong.
        with suppress(UserError, ValueError, TypeError):
            return key(json.dumps(read_yaml(path)))
    return digest(path)


class _Parameter(NamedTuple):
    """What the annotation of a parameter says: ``list[Input]``, ``int | None``."""

    type: Any
    word: str
    """Of ``Input``, ``Output`` and the like; of a plain value nothing."""
    several: bool

    @classmethod
    def of(cls, annotation: Any) -> "_Parameter":
        """That of an annotation."""
        if type(None) in get_args(annotation):
            annotation = get_args(annotation)[0]
        several = get_origin(annotation) is list
        if several:
            (annotation,) = get_args(annotation)
        word, *_ = getattr(annotation, "__metadata__", [""])
        return cls(str if word == "settings" else get_args(annotation)[0] if word else annotation, word, several)


def _annotations(function: Callable[..., str]) -> dict[str, Any]:
    return {name: annotation for name, annotation in function.__annotations__.items() if name != "return"}


def _parser(function: Callable[..., str]) -> argparse.ArgumentParser:
    """An option per parameter; one with a default may come without a value, as an empty list of a rule does."""
    description, _, rest = (function.__doc__ or "").partition("\n\n")
    helps = HELPS | dict(re.findall(r"^\s*(\w+): (.*)$", rest, re.M))
    parser = argparse.ArgumentParser(description=description)
    own = _annotations(function)
    default_of = dict(zip(reversed(own), reversed(function.__defaults__ or ()), strict=False))
    default_of |= dict.fromkeys(JOB.keys() - own.keys()) | {"settings": "{}"}
    for name, annotation in (JOB | own).items():
        kind = _Parameter.of(annotation)
        more: dict[str, Any] = {"required": True, "nargs": "+" if kind.several else None}
        if name in default_of:
            more = {"default": default_of[name], "nargs": "*" if kind.several else "?"}
            more |= {} if kind.several else {"const": default_of[name]}
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, dest=name, type=kind.type, help=helps.get(name), **more)
    return parser


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
    from tileseer.core.yaml_files import read_yaml

    try:
        return json.dumps(read_yaml(values["hardware"])["products"][values["product"]], sort_keys=True)
    except (UserError, KeyError, TypeError):
        return digest(values["hardware"])  # The stage says what is wrong.
