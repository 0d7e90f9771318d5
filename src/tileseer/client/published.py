"""One operation of a published model directory: its folder and what picks, read without pandas and LightGBM."""

from pathlib import Path

from tileseer.core.errors import UserError
from tileseer.model import index, model_files
from tileseer.model.index import Index
from tileseer.serving.picker import Picker


def published(models: Path, operation: str, arch: str | None = None) -> tuple[Index, Path]:
    """Index and folder of one operation; ``UserError`` unless every hash is that of the index.

    ``arch``, if it is given, is that of the models.
    """
    listed = index.verify(models)
    if operation not in listed.operations:
        told = f"there is no model of operation {operation!r}; it has {', '.join(listed.operations)}"
        raise UserError(f"{models / model_files.INDEX}: {told}")
    if arch is not None and arch != listed.arch:
        raise UserError(f"{models}: the models are for {listed.arch}, not for {arch}; give the directory of {arch}")
    return listed, models / listed.operations[operation].folder


def read_picker(folder: Path, listed: Index, operation: str) -> Picker:
    """What picks; ``UserError`` if it belongs to another model than the index says."""
    path = folder / model_files.PICKER
    picker = Picker.read(path)
    wanted = {"operation": operation} | {name: getattr(listed, name) for name in ("arch", "device", "device_kind")}
    for name, value in wanted.items():
        found = getattr(picker.about, name)
        if found != value:
            raise UserError(f"{path}: {name} is {found!r}, but {model_files.INDEX} says {value!r}; publish them again")
    return picker
