"""A folder of emitted C++: written fast, touched only where it changes, without leftovers of earlier runs.

``MANIFEST`` lists what was emitted, one path a line; the next emission into the folder removes what it lists and no
longer emits, and nothing else. ``STATE`` lets a repeated request be recognised without emitting: it holds a digest of
the request and one of the folder's files with their sizes and times. One emission at a time may use a folder.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tileseer.core.errors import UserError

if TYPE_CHECKING:
    # Recognising that nothing changed must not cost the import of what emits.
    from tileseer.families.family import Emitter
    from tileseer.families.gemm_kernel import Kernel

MANIFEST = "MANIFEST"
STATE = ".state"
_TEMPORARY = ".writing-"
_SLICE = 256
"""Kernels that a process takes at once; of fewer, one process writes all."""


@dataclass(frozen=True)
class Written:
    """What an emission did to the files of a folder."""

    files: int
    changed: int
    removed: int


def emit(
    folder: Path, kernels: Sequence[Kernel], arch: str, emitter: Emitter, chunk_size: int, processes: int
) -> Written:
    """Write the files of ``kernels`` and their collections below ``folder``; unchanged files keep their times."""
    collections = emitter.collection_files(kernels, arch, chunk_size)
    expected = {path for kernel in kernels for path in emitter.paths(kernel)} | set(collections)
    before = _listed(folder)
    _prepare(folder, expected)
    # An emission that is interrupted leaves a manifest that covers what it wrote.
    _write_manifest(folder, before | expected)
    changed = _write_kernels(folder, kernels, arch, emitter, processes)
    changed += _write_texts(folder, collections.items())
    stale = before - expected
    for path in stale:
        (folder / path).unlink(missing_ok=True)
    _write_manifest(folder, expected)
    return Written(len(expected), changed, len(stale))


def remember(folder: Path, request: str) -> None:
    """Note that the folder holds exactly what the request with the digest ``request`` emits."""
    _write_texts(folder, [(STATE, f"{request}\n{_listing_digest(folder)}\n")])


def is_current(folder: Path, request: str) -> bool:
    """Whether the folder still is as ``remember`` left it for the same request."""
    try:
        state = (folder / STATE).read_text(encoding="utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        return False
    return state == f"{request}\n{_listing_digest(folder)}\n"


def digest_of_files(paths: Iterable[Path]) -> str:
    """The SHA-256 (hex) of the files' paths and contents."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        content = path.read_bytes()
        digest.update(f"{path.as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _write_kernels(folder: Path, kernels: Sequence[Kernel], arch: str, emitter: Emitter, processes: int) -> int:
    """Write the files of the kernels; return how many changed."""

    def write(start: int) -> int:
        own = kernels[start : start + _SLICE]
        return sum(_write_texts(folder, emitter.kernel_files(kernel, arch).items()) for kernel in own)

    starts = range(0, len(kernels), _SLICE)
    if processes < 2 or len(starts) < 2:
        return sum(map(write, starts))
    # Forked, the processes share the kernels and the compiled templates; only the starts of slices travel.
    with multiprocessing.get_context("fork").Pool(min(processes, len(starts)), _share, (write,)) as pool:
        return sum(pool.imap_unordered(_shared_write, starts))


_shared: list[Callable[[int], int]] = []
"""In a process of the pool: what writes a slice."""


def _share(write: Callable[[int], int]) -> None:
    _shared[:] = [write]


def _shared_write(start: int) -> int:
    return _shared[0](start)


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
    (folder / STATE).unlink(missing_ok=True)


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


def _listing_digest(folder: Path) -> str:
    """Digest of the names, sizes and times of the files in the folder and in the folders in it."""
    rows = []
    for parent, _, names in os.walk(folder):
        for name in names:
            if name != STATE:
                status = os.stat(f"{parent}/{name}", follow_symlinks=False)
                rows.append(f"{parent}/{name}\0{status.st_size}\0{status.st_mtime_ns}\n")
    return hashlib.sha256("".join(sorted(rows)).encode()).hexdigest()
