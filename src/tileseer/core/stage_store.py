"""The stage store: what a stage once made of the same code, settings and inputs is put back instead of made again.

::

    key   = digest(stage, settings file with the digest of its code, options, contents of its inputs)
    value = digests of its outputs, and how much of its state they vouch for; the outputs are entries of their own

It is kept in the shared cache (``tileseer.core.cache``), which is bounded, checks every entry that it reads, and takes
concurrent writers. Outputs are put back as copies. A stage with state of its own, a journal, is no function of its
inputs alone: its outputs are put back only where the journal still begins with every byte that they vouch for. A
journal only grows, and what follows changes nothing that was counted before.

Only the standard library is imported: most jobs of a run end here.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tileseer.core import seal
from tileseer.core.atomic import naming
from tileseer.core.cache import Cache, key


class Unfinished(str):
    """What a stage prints of outputs that its next run may better: they are not kept."""


def digest(path: Path) -> str:
    """SHA-256 of a file, or of names and contents of all files of a folder; a missing one has a digest as well."""
    if path.is_dir():
        lines = (f"{name} {digest(path / name)}\n" for name in _files(path))
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    try:
        return seal.digest(path)
    except FileNotFoundError:
        return "absent"


class StageStore:
    """Outputs of stages, by the key of what they were made from."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def restore(self, key: str, outputs: Mapping[str, Path], states: Sequence[Path]) -> bool:
        """Put back what is kept under ``key``; False, with nothing written, if that is not all there."""
        entry = self._cache.get(key)
        if entry is None:
            return False
        kept = json.loads(entry)
        if kept["outputs"].keys() - outputs.keys() or len(kept["states"]) != len(states):
            return False
        held = zip(states, kept["states"], strict=True)
        if any(_beginning(path, size) != [size, made] for path, (size, made) in held):
            return False
        contents = {made: self._cache.get(_blob(made)) for files in kept["outputs"].values() for _, made, _ in files}
        if None in contents.values():
            return False
        for name, files in kept["outputs"].items():
            _put_back(outputs[name], [(file, contents[made] or b"", made, sealed) for file, made, sealed in files])
        return True

    def keep(self, key: str, outputs: Mapping[str, Path], states: Sequence[Path]) -> None:
        """Keep the outputs that exist, for the state as it is now."""
        made = {name: [*self._kept(path)] for name, path in outputs.items() if path.exists()}
        if all(file for files in made.values() for file in files):
            held = [_beginning(path) for path in states]
            self._cache.put(key, json.dumps({"outputs": made, "states": held}).encode(), replace=True)

    def _kept(self, path: Path) -> Iterator[tuple[str, str, bool] | None]:
        """Keep each file of an output; yield its name in the folder, its digest, and whether it has a seal."""
        for name in _files(path) if path.is_dir() else [""]:
            content = (path / name).read_bytes()
            made = hashlib.sha256(content).hexdigest()
            kept = self._cache.put(_blob(made), content)
            yield (name, made, seal.path_of(path / name).exists()) if kept else None


def _blob(content: str) -> str:
    return key("output of a stage", content)


def _files(folder: Path) -> list[str]:
    """Names of the files of a folder and those below; hidden ones, such as seals and Snakemake's mark, are left out."""
    found = []
    for path, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.relpath(os.path.join(path, name), folder) for name in files if not name.startswith(".")]
    return sorted(found)


def _beginning(path: Path, size: int = -1) -> list[int | str]:
    """Size and SHA-256 of a file, or of its first ``size`` bytes, as far as it has them."""
    content = b""
    if path.exists():
        with path.open("rb") as stream:
            content = stream.read(size)
    return [len(content), hashlib.sha256(content).hexdigest()]


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
                    seal.path_of(file if name else path).write_text(made + "\n")
            if path.is_dir():
                shutil.rmtree(path)
            os.replace(part, path)
    finally:
        if part.is_dir():
            shutil.rmtree(part)
        part.unlink(missing_ok=True)
