"""Bundles: many small files as one deterministic tar archive, so that a job has one output."""

import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from tileseer.core import seal
from tileseer.core.atomic import replacing, write_bytes
from tileseer.core.errors import UserError

_MODE = 0o644


def write(path: str | Path, files: Mapping[str, bytes | str]) -> None:
    """Write ``files`` (relative POSIX path to content; text as UTF-8) atomically and uncompressed.

    The bytes depend on names and contents only: sorted, with fixed owner, mode and time.
    """
    for name in files:
        _check_name(name, path)
    with replacing(path, sealed=True) as temporary, tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            content = files[name]
            data = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            entry.mode = _MODE
            archive.addfile(entry, io.BytesIO(data))


def read(path: str | Path) -> dict[str, bytes]:
    """Files of a bundle, sorted by name; a damaged or foreign archive is a ``UserError``."""
    seal.check(Path(path))
    files = {}
    try:
        with tarfile.open(path, "r:") as archive:
            for entry in archive:
                _check_name(entry.name, path)
                stream = archive.extractfile(entry) if entry.isreg() else None
                if stream is None:
                    raise UserError(f"{path}: {entry.name} is no regular file; bundles hold nothing else")
                if entry.name in files:
                    raise UserError(f"{path}: {entry.name} is in it twice; delete the bundle and run again")
                files[entry.name] = stream.read()
    except (tarfile.TarError, EOFError) as error:
        raise UserError(f"{path}: this is no readable bundle ({error}); delete it and run again") from error
    return dict(sorted(files.items()))


def unpack(paths: Sequence[str | Path], folder: str | Path) -> None:
    """Write the files of bundles below ``folder``, each atomically; names that leave it are a ``UserError``.

    Nothing is written before all bundles are read.
    """
    files = [item for path in paths for item in read(path).items()]
    for name, content in files:
        write_bytes(Path(folder) / name, content)


def _check_name(name: str, path: str | Path) -> None:
    # What a path normalises away (``./a``, ``a//b``) could make two names one file.
    parts = PurePosixPath(name).parts
    if not parts or ".." in parts or PurePosixPath(name).is_absolute() or "/".join(parts) != name or "\\" in name:
        raise UserError(f"{path}: {name!r} is no plain path below the bundle's folder")
