"""What a run's jobs are made from: found once by the run, compared by each job at its begin and before it renames.

A run is a process of Snakemake. It finds digests of the code and of the files that no stage makes, which Snakemake
compares with those of its last run. Jobs inherit them in a variable of the environment, on other nodes too, where the
Snakefile is read again when the sources are perhaps others.
"""

import csv
import hashlib
import json
import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from tileseer.core import atomic, code_digest
from tileseer.core.errors import UserError
from tileseer.core.reading import LARGEST_TABLE, read_utf8

VARIABLE = "TILESEER_RUN"
RECORD = Path(".snakemake/tileseer")
"""A name at random beside what Snakemake knows of results; every rule has this file as an input."""
MADE_BY = ".made_by"
"""In results/, the name of the record that belongs to them, written by jobs."""
LOCK = ".lock"
"""In results/, held by the run that makes them. Its text says by whom and since when, and stays when the run ends."""
LOCKS = Path(".snakemake/locks")
"""Snakemake's own locks, which stay when a run is killed; a profile with ``nolock`` has none."""
NOT_WRITABLE = "run in a folder of your own (tileseer init FOLDER)"
KILLED = "an earlier run was killed; when its jobs have ended: snakemake --unlock, then this command again"
SOURCES_CHANGED = "the sources changed since this run began; run it again"


class Run:
    """What a process of Snakemake found when it read the Snakefile; one within a job has what the job's run found."""

    def __init__(self) -> None:
        here = os.getcwd()
        inherited = json.loads(os.environ.get(VARIABLE, "{}"))
        self.is_job = inherited.get("folder") == here
        self._found: dict[str, Any] = (
            inherited if self.is_job else {"folder": here, "code": {}, "files": {}, "tables": {}}
        )

    def code(self, stage: str) -> str:
        """Return the digest of the code of a stage."""
        code = self._found["code"]
        if stage not in code:
            # Its state first: what changes after that is looked at again by the job.
            code[stage] = [_state_of(code_digest.files_of_stage(stage)), code_digest.code_of_stage(stage)]
            self._share()
        return str(code[stage][1])

    def tables(self, paths: Iterable[str]) -> str:
        """Return the digest of what files say that no stage makes."""
        names = sorted({str(Path(path)) for path in paths})
        key, files = _digest(names), self._found["files"]
        if key not in self._found["tables"]:
            new = (name for name in names if _digest([name]) not in files)
            files |= {_digest([name]): [_state_of([Path(name)]), content_of(Path(name))] for name in new}
            self._found["tables"][key] = _digest(files[_digest([name])][1] for name in names)
            self._share()
        return str(self._found["tables"][key])

    def plan(self, results: Path) -> str:
        """Note, before jobs are planned, the last run in ``results``, and whether Snakemake has a record of them.

        Where it has none, ``RECORD`` gets another name: so it is newer than all results, with a checksum that no job
        had, and they are made again. A dry run shows the same, and changes no more than Snakemake's own folder. Return
        what to do where a lock of Snakemake was left by a run that was killed.
        """
        from tileseer.core.locks import is_held

        self._results, self._last = results, _text_of(results / LOCK)
        record, made_by = _text_of(RECORD), _text_of(results / MADE_BY)
        self._foreign = made_by != record and any(results.glob("*/*"))
        if not self.is_job:
            # Another run here may have begun without a job so far.
            if not record or (made_by != record and not is_held(results / LOCK)):
                record = secrets.token_hex(8)
                try:
                    atomic.write_text(RECORD, record + "\n")
                except OSError as error:
                    raise UserError(f"{RECORD}: cannot be written: {error.strerror}; {NOT_WRITABLE}") from error
            self._share(results=str(results.resolve()), record=record)
            if any(LOCKS.glob("*.lock")) and not is_held(results / LOCK):
                return KILLED
        return ""

    def hold(self) -> str:
        """Hold the results until this process ends; return what there is to say of them.

        ``UserError`` if another run makes them, or has made some since the jobs were planned.
        """
        from tileseer.core.locks import NoLocks, try_lock

        self._results.mkdir(parents=True, exist_ok=True)
        results, said = self._results.resolve(), []
        last = _text_of(results / LOCK)
        try:
            if try_lock(results / LOCK) is None:
                raise _taken(results, last)
        except NoLocks as error:
            said.append(f"warning: {error}; until then see to it that one run at a time makes these results")
        if last != self._last:
            raise UserError(f"{results}: another run changed these results just now ({last}); run it again")
        if self._foreign:
            said.append(
                f"{self._results}/ was made by another run: what this run needs is made again (measured times are "
                "kept); to keep the rest as well, stop this run and start it in a folder of its own"
            )
        self._share(holder=_text_of(results / LOCK))
        return "\n".join(said)

    def _share(self, **more: str) -> None:
        self._found |= more
        os.environ[VARIABLE] = json.dumps(self._found, separators=(",", ":"))


def refuse_held(results: Path) -> None:
    """Raise a ``UserError`` where another run holds ``results``, or they are no folder, before jobs are planned."""
    from tileseer.core.locks import is_held

    if os.path.lexists(results) and not results.is_dir():
        lost = f"links to {os.readlink(results)}, where no folder is; make that folder, or remove the link"
        raise UserError(f"{results}: {lost if results.is_symlink() else 'is no folder; move it away'}")
    if is_held(results / LOCK):
        raise _taken(results, _text_of(results / LOCK))


def _taken(results: Path, holder: str) -> UserError:
    return UserError(f"{results}: another run makes these results: {holder}; wait for its end")


@contextmanager
def checked_job(stage: str, code: str, inputs: Sequence[Path]) -> Iterator[None]:
    """Compare what a job begins with and what its run found, and go on to compare before each rename.

    ``UserError`` if the digest of its code is not ``code``, a file that no stage makes says something else, or another
    run has the results by now; and later if this changes, or a size or time of an input.
    """
    run = json.loads(os.environ.get(VARIABLE, "{}"))
    results, holder = Path(run.get("results", "")), run.get("holder")
    files = code_digest.files_of_stage(stage)
    sources, states = _states(files), _states(inputs)
    if _state_of(files) != run.get("code", {}).get(stage, [""])[0]:
        _refuse_other_code(stage, code)
    for path, (state, content) in ((path, run.get("files", {}).get(_digest([str(path)]), ["", ""])) for path in inputs):
        if state and _state_of([path]) != state and content_of(path) != content:
            raise UserError(f"{path}: changed since this run began; run it again")

    def check() -> None:
        if holder is not None and (other := _text_of(results / LOCK)) != holder:
            raise UserError(f"{results}: another run makes these results by now: {other}; run it again")
        if changed := [path for path, state in _states(inputs).items() if state != states[path]]:
            raise UserError(f"{changed[0]}: changed while this job read it; run it again")
        if _states(files) != sources:
            _refuse_other_code(stage, code)

    check()
    if "record" in run and _text_of(results / MADE_BY) != run["record"]:
        atomic.write_text(results / MADE_BY, run["record"] + "\n")
    _load_only(sources)
    token = atomic.refuse_changes.set(check)
    try:
        yield
    finally:
        atomic.refuse_changes.reset(token)
        _loadable.clear()


def content_of(path: Path) -> str:
    """Return the digest of what a file says: of YAML, JSON and CSV the values, of others the bytes; "" without it."""
    from tileseer.core.seal import file_digest

    if not path.is_file():
        return ""
    try:
        return _digest([_values(path)])
    except (UserError, ValueError, RecursionError, csv.Error):
        # What is wrong with it is told by the stage that reads it.
        return file_digest(path)[:16]


def _values(path: Path) -> str:
    from tileseer.core.yaml_files import read_yaml

    if path.suffix in (".yaml", ".yml"):
        return repr(read_yaml(path))
    if path.suffix == ".json":
        return repr(json.loads(read_utf8(path)))
    if path.suffix == ".csv":
        text = read_utf8(path, LARGEST_TABLE, "utf-8-sig")
        return repr([row for row in csv.reader(text.splitlines(), skipinitialspace=True) if row])
    raise ValueError(path.suffix)


def _refuse_other_code(stage: str, code: str) -> None:
    code_digest.forget()
    if code_digest.code_of_stage(stage) != code:
        raise UserError(SOURCES_CHANGED)


_loadable: dict[str, tuple[int, int]] = {}
"""Size and time of change of the sources with which the job of this process began."""


def _load_only(sources: dict[Path, tuple[int, int]]) -> None:
    """Refuse to load another version of a module than the job began with, though it may be taken back later."""
    _loadable.update({str(path): state for path, state in sources.items()})
    _audit()


@cache
def _audit() -> None:
    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "exec" and isinstance(code := arguments[0], CodeType) and code.co_filename in _loadable:
            path = Path(code.co_filename)
            if _states([path])[path] != _loadable[code.co_filename]:
                raise UserError(SOURCES_CHANGED)

    sys.addaudithook(hook)


def _states(paths: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """Return size and time of change (ns) of files, -1 of one that is not there."""
    found = {}
    for path in paths:
        try:
            state = path.stat()
            found[path] = state.st_size, state.st_mtime_ns
        except FileNotFoundError:
            found[path] = -1, -1
    return found


def _state_of(paths: Iterable[Path]) -> str:
    return _digest(f"{path} {size} {time}" for path, (size, time) in _states(paths).items())


def _text_of(path: Path) -> str:
    return read_utf8(path).strip() if path.is_file() else ""


def _digest(words: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:16]
