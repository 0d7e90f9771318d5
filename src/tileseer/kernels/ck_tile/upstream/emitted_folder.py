"""A folder of emitted C++: touched only where it changes, without leftovers of earlier runs.

``MANIFEST`` lists what was emitted, one path per line; the next emission into the folder removes what it lists and no
longer emits, and nothing else. One emission at a time may use a folder.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tileseer.core.errors import UserError
from tileseer.kernels.emitter import Emitter
from tileseer.kernels.gemm_kernel import Kernel

MANIFEST = "MANIFEST"
_TEMPORARY = ".writing-"


@dataclass(frozen=True)
class EmittedFiles:
    """What an emission did to the files of a folder."""

    files: int
    changed: int
    removed: int


def emit_folder(folder: Path, kernels: Sequence[Kernel], arch: str, emitter: Emitter, chunk_size: int) -> EmittedFiles:
    """Write the files of ``kernels`` and their collections below ``folder``; unchanged files keep their times."""
    collections = emitter.collection_files(kernels, arch, chunk_size)
    expected = {path for kernel in kernels for path in emitter.paths(kernel)} | set(collections)
    before = _listed(folder)
    _prepare(folder, expected)
    # An emission that is interrupted leaves a manifest that covers what it wrote.
    _write_manifest(folder, before | expected)
    changed = sum(_write_texts(folder, emitter.kernel_files(kernel, arch).items()) for kernel in kernels)
    changed += _write_texts(folder, collections.items())
    stale = before - expected
    for path in stale:
        (folder / path).unlink(missing_ok=True)
    _write_manifest(folder, expected)
    return EmittedFiles(len(expected), changed, len(stale))


def _write_texts(folder: Path, texts: Iterable[tuple[str, str]]) -> int:
    """Write each text unless the file has it already; return how many were written. A file appears whole."""
    root, temporary = f"{folder}/", f"{folder}/{_TEMPORARY}{os.getpid()}"
    written = 0
    for path, text in texts:
        content = text.encode()
        if _content(root + path) != content:
            with open(temporary, "wb") as stream:
                stream.write(content)
            os.replace(temporary, root + path)
            written += 1
    return written


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def _prepare(folder: Path, expected: Iterable[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for parent in {path.rpartition("/")[0] for path in expected}:
        (folder / parent).mkdir(parents=True, exist_ok=True)
    for left in folder.glob(f"{_TEMPORARY}*"):
        left.unlink()


def _listed(folder: Path) -> set[str]:
    """The paths of the manifest; a folder without one has none."""
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError:
        return set()
    paths = set(text.splitlines())
    for path in paths:
        if path.startswith("/") or ".." in Path(path).parts:
            raise UserError(f"{folder / MANIFEST}: {path!r} is no path below this folder; delete the folder")
    return paths


def _write_manifest(folder: Path, paths: Iterable[str]) -> None:
    _write_texts(folder, [(MANIFEST, "".join(f"{path}\n" for path in sorted(paths)))])
