"""Reading ELF files, and whether what a compiler wrote is a whole one: before a cache hands it to everybody."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from elftools.elf.elffile import ELFFile


@contextmanager
def open_elf(content: bytes, what: str) -> Iterator[ELFFile]:
    """Yield an ELF file to read; whatever fails in the block is a ``ValueError`` that says that it is no ``what``.

    What pyelftools raises for a damaged file is whatever its parser stumbles over.
    """
    try:
        yield ELFFile(io.BytesIO(content))
    except Exception as error:
        raise ValueError(f"this is no {what}: {error!r}") from error


def fault(content: bytes, names: Sequence[str] = ()) -> str:
    """Return why ``content`` is no whole ELF file that holds all ``names``; empty if it is one."""
    if not content:
        return "it is empty"
    try:
        with open_elf(content, "ELF file") as file:
            sections = list(file.iter_sections())
    except ValueError as error:
        return str(error)
    ends = [section["sh_offset"] + section["sh_size"] for section in sections if section["sh_type"] != "SHT_NOBITS"]
    if not ends or max(ends) > len(content):
        return "it is cut short"
    missing = [name for name in names if name.encode() not in content]
    return f"it does not hold {missing[0]}" if missing else ""
