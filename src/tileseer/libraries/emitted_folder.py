"""A folder of emitted C++: touched only where it changes, without leftovers of earlier runs.

``MANIFEST`` lists what was emitted, one path per line; the next emission into the folder removes what it lists and no
longer emits, and nothing else. One emission at a time may use a folder.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from tileseer.core.atomic import naming
from tileseer.core.errors import UserError
from tileseer.core.reading import read_utf8, regular_file
from tileseer.libraries.emitter import Emitter
from tileseer.libraries.gemm_kernel import Kernel

MANIFEST_FILE = "MANIFEST"
_TEMPORARY = ".writing"


def emit_folder(folder: Path, kernels: Sequence[Kernel], arch: str, emitter: Emitter) -> dict[str, int]:
    """Write the files of ``kernels`` and their collections below ``folder``; unchanged files keep their times.

    Returned: how many files there are, and how many of them were written and removed.
    """
    collections = emitter.collection_files(kernels, arch)
    expected = {path for kernel in kernels for path in emitter.paths(kernel)} | set(collections)
    before = _listed(folder)
    for parent in {(folder / path).parent for path in (MANIFEST_FILE, *expected)}:
        parent.mkdir(parents=True, exist_ok=True)
    # An emission that is interrupted leaves a manifest that covers what it wrote.
    _write_manifest(folder, before | expected)
    texts = chain.from_iterable(emitter.kernel_files(kernel, arch).items() for kernel in kernels)
    written = sum(_write_changed(folder, path, text) for path, text in chain(texts, collections.items()))
    stale = before - expected
    for path in stale:
        (folder / path).unlink(missing_ok=True)
    _write_manifest(folder, expected)
    return {"files": len(expected), "files_written": written, "files_removed": len(stale)}


def _write_changed(folder: Path, path: str, text: str) -> bool:
    """Write a text unless the file has it already; return whether it was written. A file appears whole."""
    target = f"{folder}/{path}"
    content = text.encode()
    with suppress(FileNotFoundError), regular_file(Path(target)) as stream:
        if stream.read() == content:
            return False
    with naming(Path(target)):
        with open(f"{folder}/{_TEMPORARY}", "wb") as stream:
            stream.write(content)
        os.replace(f"{folder}/{_TEMPORARY}", target)
    return True


def _listed(folder: Path) -> set[str]:
    """Return the paths of the manifest; a folder without one has none."""
    if not (folder / MANIFEST_FILE).exists():
        return set()
    paths = set(read_utf8(folder / MANIFEST_FILE).splitlines())
    for path in paths:
        if path.startswith("/") or ".." in Path(path).parts:
            raise UserError(f"{folder / MANIFEST_FILE}: {path!r} is no path below this folder; delete the folder")
    return paths


def _write_manifest(folder: Path, paths: Iterable[str]) -> None:
    _write_changed(folder, MANIFEST_FILE, "".join(f"{path}\n" for path in sorted(paths)))
