"""The kernels that a published model lists, read without pandas."""

from pathlib import Path

from pydantic import BaseModel

from tileseer.core import documents
from tileseer.core.documents import Document
from tileseer.model import model_files


class KernelEntry(Document):
    """A kernel as a dispatcher finds it."""

    kernel: str
    aliases: list[str] | None = None
    """Kernels with the same machine code, of which this one was measured and is offered."""
    header: str | None = None
    wrapper: str | None = None
    unit: str | None = None
    """Source file of a CUTLASS kernel."""
    registry_key: dict[str, str | int | bool]
    """How the library finds it; of a library that is not compiled here, the fields of the name."""


class _Listed(BaseModel):
    """The part of ``kernels.json`` that names kernels; the whole is ``schema.Kernels``."""

    kernels: list[KernelEntry]


def other_names(folder: Path) -> dict[str, list[str]]:
    """The other names of each kernel of one operation's published folder."""
    listed = documents.read(folder / model_files.KERNELS, _Listed)
    return {entry.kernel: entry.aliases or [] for entry in listed.kernels}
