"""The stage store: what a stage once made of the same code, settings and inputs is put back instead of made again.

::

    key   = digest(stage's file with settings and code, options, contents of inputs)
    value = digests of the outputs, and how much of the journals they cover; the outputs are entries of their own

It is kept in the shared cache (``tileseer.core.cache``), which is bounded, checks every entry that it reads, and takes
concurrent writers. Outputs are put back as copies. A stage with a journal is no function of its inputs alone: its
outputs are put back only where the journal still begins with every byte that was there when they were made. A journal
only grows, and a later line changes nothing that was counted before.

Only the standard library is imported: most jobs of a run end here.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from tileseer.core import seal
from tileseer.core.atomic import naming
from tileseer.core.cache import Cache, key
from tileseer.core.journal_files import journal_files

_DIGEST = re.compile(r"[0-9a-f]{64}")
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}"
_NAME = re.compile(f"({_PART}(/{_PART}){{0,9}})?")
"""Names of the files of an output: no other one is put back. That of an output that is a file is empty."""


class Unfinished(str):
    """What a stage prints of outputs that its next run may better: they are not kept."""


def digest(path: Path) -> str:
    """SHA-256 of a file, or of names and contents of all files of a folder; a missing one has a digest as well."""
    if path.is_dir():
        lines = (f"{name} {digest(path / name)}\n" for name in _files(path))
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    try:
        return seal.file_digest(path)
    except FileNotFoundError:
        return "absent"


class StageStore:
    """Outputs of stages, by the key of what they were made from."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def restore(self, key: str, outputs: Mapping[str, Path], journals: Sequence[Path]) -> bool:
        """Put back what is kept under ``key``; False, with nothing written, if that is not all there."""
        entry = _Entry.parse(self._cache.get(key))
        if entry is None or entry.outputs.keys() != outputs.keys() or len(entry.journals) != len(journals):
            return False
        held = zip(journals, entry.journals, strict=True)
        if any(_beginning(path, size) != (size, made) for path, (size, made) in held):
            return False
        contents = {made: self._content(made) for files in entry.outputs.values() for _, made, _ in files}
        if None in contents.values():
            return False
        for name, files in entry.outputs.items():
            _put_back(outputs[name], [(file, contents[made] or b"", made, sealed) for file, made, sealed in files])
        return True

    def keep(self, key: str, outputs: Mapping[str, Path], journals: Sequence[Path]) -> None:
        """Keep the outputs that exist, for the journals as they are now."""
        made = {name: [*self._kept(path)] for name, path in outputs.items() if path.exists()}
        if all(file for files in made.values() for file in files):
            entry = {"outputs": made, "journals": [_beginning(path) for path in journals]}
            self._cache.put(key, json.dumps(entry).encode(), replace=True)

    def _kept(self, path: Path) -> Iterator[tuple[str, str, bool] | None]:
        """Keep each file of an output; yield its name in the folder, its digest, and whether it has a seal."""
        for name in _files(path) if path.is_dir() else [""]:
            content = (path / name).read_bytes()
            made = hashlib.sha256(content).hexdigest()
            kept = self._cache.put(_blob(made), content)
            yield (name, made, seal.seal_path(path / name).exists()) if kept else None

    def _content(self, made: str) -> bytes | None:
        """Content with a digest; None if it is not there, or is another one."""
        content = self._cache.get(_blob(made))
        return content if content is not None and hashlib.sha256(content).hexdigest() == made else None


class _Entry(NamedTuple):
    """An entry of the store: others may write to the cache, so every field is checked."""

    outputs: dict[str, list[tuple[str, str, bool]]]
    journals: list[tuple[int, str]]

    @classmethod
    def parse(cls, entry: bytes | None) -> "_Entry | None":
        """The entry; None if there is none, or it has another form."""
        try:
            content = json.loads(entry or b"")
            outputs = {name: _checked_files(files) for name, files in content["outputs"].items()}
            return cls(outputs, [_checked_journal(*journal) for journal in content["journals"]])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None


def _checked_files(files: list[list[Any]]) -> list[tuple[str, str, bool]]:
    """``ValueError`` for a name that no stage writes, a digest that is none, or names of which one excludes another."""
    for name, made, sealed in files:
        if not (_NAME.fullmatch(name) and _DIGEST.fullmatch(made) and isinstance(sealed, bool)):
            raise ValueError(name)
    folders = {parent.as_posix() for name, *_ in files for parent in PurePosixPath(name).parents if name}
    names = {name or "." for name, *_ in files}
    if not files or len(names) < len(files) or names & folders:
        raise ValueError(files)
    return [(name, made, sealed) for name, made, sealed in files]


def _checked_journal(size: int, made: str) -> tuple[int, str]:
    if not isinstance(size, int) or not _DIGEST.fullmatch(made):
        raise ValueError(size)
    return size, made


def _blob(content: str) -> str:
    return key("output of a stage", content)


def _files(folder: Path) -> list[str]:
    """Names of the files of a folder and those below; hidden ones, such as seals and Snakemake's mark, are left out."""
    found = []
    for path, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.relpath(os.path.join(path, name), folder) for name in files if not name.startswith(".")]
    return sorted(found)


def _beginning(path: Path, size: int = -1) -> tuple[int, str]:
    """Size and SHA-256 of the files of a journal, or of their first ``size`` bytes, as far as there are as many."""
    content = b"".join(file.read_bytes() for file in journal_files(path))
    content = content if size < 0 else content[:size]
    return len(content), hashlib.sha256(content).hexdigest()


def _put_back(path: Path, files: list[tuple[str, bytes, str, bool]]) -> None:
    """Write the files of one output; it appears whole or, if this process is killed, not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with naming(path):
            for name, content, made, sealed in files:
                file = part / name if name else part
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
                if sealed:
                    seal.seal_path(file if name else path).write_text(made + "\n")
            if path.is_dir():
                shutil.rmtree(path)
            os.replace(part, path)
    finally:
        if part.is_dir():
            shutil.rmtree(part)
        part.unlink(missing_ok=True)
