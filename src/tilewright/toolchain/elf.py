"""Whether what a compiler wrote is a whole ELF file: before a cache hands it to everybody."""

from __future__ import annotations

import io
from collections.abc import Sequence

from elftools.elf.elffile import ELFFile


def fault(content: bytes, names: Sequence[str] = ()) -> str:
    """Return why ``content`` is no whole ELF file that holds all ``names``; empty if it is one."""
    if not content:
        return "it is empty"
    try:
        sections = list(ELFFile(io.BytesIO(content)).iter_sections())
    except Exception as error:  # What pyelftools raises for a damaged file is whatever its parser stumbles over.
        return f"it is no ELF file: {error!r}"
    ends = [section["sh_offset"] + section["sh_size"] for section in sections if section["sh_type"] != "SHT_NOBITS"]
    if not ends or max(ends) > len(content):
        return "it is cut short"
    missing = [name for name in names if name.encode() not in content]
    return f"it does not hold {missing[0]}" if missing else ""
