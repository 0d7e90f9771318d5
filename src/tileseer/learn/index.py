"""The index of a published model directory, and how a client knows that nothing was changed."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from tileseer.config.operations import DTYPES, VARIANTS
from tileseer.core import documents, seal
from tileseer.core.documents import Document
from tileseer.core.errors import UserError
from tileseer.core.tables import validate_table
from tileseer.learn.model_files import INDEX
from tileseer.measure.device import DeviceKind

FORMAT = 2


class Entry(Document):
    """The model of one operation; the pattern keeps a directory from naming files outside it."""

    folder: Annotated[str, StringConstraints(pattern=r"^grouped_conv_\w+$")]


_Operation = Annotated[str, StringConstraints(pattern=f"^({'|'.join(VARIANTS)})_({'|'.join(DTYPES)})$")]


class Index(Document):
    """What a model directory holds, and the SHA-256 of each of its files."""

    format: int
    arch: str
    device: str
    device_kind: DeviceKind
    operations: Annotated[dict[_Operation, Entry], Field(min_length=1)]
    sha256: dict[str, Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]]


def verify(models: Path) -> Index:
    """The index of a model directory; ``UserError`` names a file that is missing, changed or not listed."""
    content = documents.read_json(models / INDEX)
    version = content.get("format") if isinstance(content, dict) else None
    if version != FORMAT:
        raise UserError(
            f"{models / INDEX}: format is {version!r}; this release reads {FORMAT}: publish the models again"
        )
    index = validate_table(content, Index, str(models / INDEX))
    present = hashes(models)
    for name, expected in index.sha256.items():
        if name not in present:
            # No path arithmetic: an absolute name in the index would leave the directory out of the message.
            raise UserError(f"{models}/{name}: the file is missing, which index.json lists; publish the models again")
        if present[name] != expected:
            raise UserError(f"{models / name}: the content does not match index.json; publish the models again")
    extra = sorted(set(present) - set(index.sha256))
    if extra:
        raise UserError(f"{models / extra[0]}: the file is not listed in index.json; remove it or publish again")
    return index


def operation_folder(models: Path, operation: str, arch: str | None = None) -> Path:
    """The folder of one operation of a model directory whose files all have their hashes; ``arch``: it is for that."""
    index = verify(models)
    if operation not in index.operations:
        available = ", ".join(index.operations)
        raise UserError(f"{models / INDEX}: there is no model of operation {operation!r}; it has {available}")
    if arch is not None and arch != index.arch:
        raise UserError(f"{models}: the models are for {index.arch}, not for {arch}; give the directory of {arch}")
    return models / index.operations[operation].folder


def hashes(models: Path) -> dict[str, str]:
    """SHA-256 of every file but the index, by its path inside ``models``."""
    # Hidden files are no part of a model: Snakemake leaves a time stamp in every folder that a job makes.
    visible = (path for path in models.rglob("[!.]*") if path.is_file())
    files = sorted(path for path in visible if path != models / INDEX)
    return {path.relative_to(models).as_posix(): seal.file_digest(path) for path in files}
