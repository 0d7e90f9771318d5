"""Bundles: many small files as one deterministic tar archive, so that a job has one output."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import IO, cast

from tileseer.core.atomic import replacing
from tileseer.core.errors import UserError, printed
from tileseer.core.reading import LARGEST_TABLE, opened


def write_bundle(path: str | Path, files: Mapping[str, bytes | str]) -> None:
    """Write ``files`` (relative POSIX path to content; text as UTF-8) atomically and uncompressed.

    The bytes depend on names and contents only: sorted, with fixed owner, mode and time.
    """
    with replacing(path) as temporary, tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            content = files[name]
            data = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def read_bundle(path: str | Path) -> dict[str, bytes]:
    """Return the files of a bundle, sorted by name.

    A damaged or foreign archive is a ``UserError``; so is one with a link or with a path that leaves its folder.
    """
    try:
        with opened(Path(path), LARGEST_TABLE) as file, tarfile.open(fileobj=file, mode="r:") as archive:
            found = {}
            for entry in archive:
                if not entry.isreg() or entry.issparse() or not _is_below(entry.name):
                    raise tarfile.TarError(f"{printed(entry.name)} is no file below its folder")
                found[entry.name] = cast(IO[bytes], archive.extractfile(entry)).read()
            return dict(sorted(found.items()))
    except (tarfile.TarError, EOFError) as error:
        raise UserError(f"{path}: this is no readable bundle ({error}); delete it and run again") from error


def _is_below(name: str) -> bool:
    """Return whether a path stays in the folder that it is relative to, and has no other spelling."""
    # tarfile.data_filter would say so, but Debian 12 has Python 3.11.2, which lacks it.
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and str(path) == name != "."
