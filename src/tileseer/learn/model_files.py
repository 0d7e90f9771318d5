"""The published model directory: the names of its files, and the index by which a client knows that none was changed.

::

    MODELS/index.json                                 hashes of all files, arch, operations, device kind
    MODELS/provenance.json                            what made them
    MODELS/README.md                                  what they are, how good, and how to use them
    MODELS/grouped_conv_{operation}_{arch}/
        feature_spec.json  train_manifest.json  candidates.parquet  hardware.json
        selector.hpp  known_problems.parquet  golden.parquet  kernels.json  resource_estimates.json
        evaluation.json  layers.parquet  and the files of the learner (trees:
        model_tflops.lgbm, cuts.json, feature_importances_tflops.json)

No file holds a time, a host or a path, so the same models publish to the same bytes.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, StringConstraints, field_validator

from tileseer.core import seal
from tileseer.core.documents import Document, read_json
from tileseer.core.errors import UserError, is_it, require, shown
from tileseer.core.strict_tables import validate_table
from tileseer.facts.hardware import of_its_arch
from tileseer.facts.names import ARCH_PATTERN, Arch, OperationName, Product
from tileseer.facts.operations import OPERATION_PATTERN
from tileseer.measure.device import DeviceKind

INDEX = "index.json"
SPEC = "feature_spec.json"
MANIFEST = "train_manifest.json"
CANDIDATES = "candidates.parquet"
HARDWARE = "hardware.json"
TRAINING_FILES = (SPEC, MANIFEST, CANDIDATES, HARDWARE)
"""What training leaves in its folder beside the files of the scorer (``learner.Scorer.FILES``)."""
SELECTOR = "selector.hpp"
KNOWN = "known_problems.parquet"
GOLDEN = "golden.parquet"
"""Problems with the features, score and name of the pick, by which a port tests itself."""
KERNELS = "kernels.json"
EVALUATION = "evaluation.json"
"""How good the picks are that ship."""
LAYERS = "layers.parquet"
"""The same, layer by layer."""
ESTIMATES = "resource_estimates.json"
"""Coefficients by which a kernel outside the pool gets its registers, LDS and occupancy."""
SERVING_FILES = (SELECTOR, KNOWN, GOLDEN, KERNELS, ESTIMATES)
"""What the serving stage leaves in its folder; publishing adds ``EVALUATION`` and ``LAYERS``."""
PAGE = "README.md"
"""What the models are, how good, and how to use them."""
PROVENANCE = "provenance.json"
"""What made the models (``tileseer.serve.provenance``); a directory that was published by hand may lack it."""
FORMAT: Literal[7] = 7
READERS = ">=0.1,<0.2"
"""Versions of the package that read a directory of this one: features and rules are in the package."""
READS = 20
"""How often a directory is read that is published anew each time."""
Content = TypeVar("Content")


class Entry(Document):
    """The model of one operation; the pattern keeps a directory from naming files outside it."""

    folder: Annotated[str, StringConstraints(pattern=r"^grouped_conv_[a-z0-9_]+$")]


class Index(Document):
    """What a model directory holds, and the SHA-256 of each of its files."""

    format: Literal[7]
    tileseer: str
    """Versions of the package that read the directory, ``READERS``."""
    arch: Arch
    device: Product
    device_kind: DeviceKind
    operations: Annotated[dict[OperationName, Entry], Field(min_length=1)]
    sha256: dict[str, Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]]

    _of_its_arch = field_validator("device")(of_its_arch)


def read_index(models: Path) -> Index:
    """Return the index of a model directory; ``UserError`` names a file that is missing, changed or not listed."""
    return of_one_version(models, lambda: _checked_index(models))


def of_one_version(models: Path, read: Callable[[], Content]) -> Content:
    """Return what ``read`` makes of a model directory: once more where another version was published meanwhile."""
    for _ in range(READS):
        before = _version(models)
        try:
            content = read()
        except (UserError, OSError):
            if _version(models) == before:
                raise
        else:
            if _version(models) == before:
                return content
    return read()


AGAIN = "publish the models again: repeat the run that made them, with --forcerun publish"


def _version(models: Path) -> tuple[int, int] | None:
    """Return what tells one publication from the next, even one of the same bytes."""
    try:
        state = (models / INDEX).stat()
    except OSError:
        return None
    return state.st_ino, state.st_ctime_ns


def parse_index(models: Path) -> Index:
    """Return the index of a model directory, whose files are not checked."""
    path = models / INDEX
    if not path.exists():
        refuse_inside(models)
        raise UserError(f"{models}: has no models (no {INDEX}); {_way_to_models(models)}")
    try:
        content = read_json(path)
    except UserError as error:
        raise UserError(f"{error}; {AGAIN}") from error
    if not isinstance(content, dict) or "format" not in content:
        raise UserError(f"{path}: is no index of models; {AGAIN}")
    found = [content.get(name) for name in ("format", "tileseer")]
    if found != [FORMAT, READERS]:
        raise UserError(
            f"{path}: is of format {found[0]} for tileseer {found[1] or 'of an earlier release'}, but this release "
            f"reads format {FORMAT} for {READERS}: publish the models again, or use a release that fits"
        )
    try:
        return validate_table(content, Index, str(path))
    except UserError as error:
        raise UserError(f"{error}; {AGAIN}") from error


def refuse_inside(path: Path) -> None:
    """Raise a ``UserError`` for what lies in a folder of models, with that folder."""
    for outer in (path.parent, path.parent.parent):
        if (outer / INDEX).is_file():
            raise UserError(f"{path}: is inside of a folder of models; give that: {outer}")


def has_operations(folder: Path) -> bool:
    """Return whether models of operations lie in a folder, with an index or without."""
    return any(folder.glob(f"grouped_conv_*/{SPEC}"))


def _way_to_models(models: Path) -> str:
    """Say how to come to models where there are none."""
    if has_operations(models):
        return f"copy all of its files, or {AGAIN}"
    inside = sorted(path.parent.as_posix() for path in (*models.glob(f"*/{INDEX}"), *models.glob(f"models/*/{INDEX}")))
    if inside:
        return f"give one of its folders: {', '.join(inside)}"
    made = sorted(path.parent.as_posix() for path in Path("results/models").glob(f"*/{INDEX}"))
    if (own := f"results/models/{models.name}") in made and models.resolve() != Path(own).resolve():
        return f"give {own}"
    if near := is_it(own, made, 0.9):
        return near.removeprefix("; ")
    if not made and not models.exists() and not Path("Snakefile").is_file():
        return "give the path of a folder that is there, or go to the folder of the run, which has results/"
    if re.fullmatch(ARCH_PATTERN, models.name):
        # Imported here: it takes longer than a pick.
        from tileseer.data.recordings import way_to_models

        return way_to_models(models.name)
    return f"give one of {', '.join(made)}" if made else "make some: tileseer run makes results/models/gfx950"


def _checked_index(models: Path) -> Index:
    index = parse_index(models)
    present = file_digests(models)
    if fault := fault_of(models, index, present):
        raise UserError(f"{fault}; {AGAIN}")
    extra = sorted(set(present) - set(index.sha256))
    if extra:
        raise UserError(f"{models / extra[0]}: the file is not listed in index.json; remove it or publish again")
    return index


def fault_of(models: Path, index: Index, present: Mapping[str, str]) -> str:
    """Return which file of an index is missing or changed, of those ``present`` with their digests; empty for none."""
    for name, digest in index.sha256.items():
        if name not in present:
            return f"{models / INDEX}: lists {shown(name)}, which is missing"
        if present[name] != digest:
            return f"{models / name}: the content does not match index.json"
    return ""


def operation_folder(models: Path, operation: str, arch: str | None = None) -> Path:
    """Return the folder of one operation of a model directory, whose files all have their hashes."""
    require("operation", operation, str, "its name, such as forward_bf16")
    index = read_index(models)
    if operation not in index.operations:
        direction = str(operation).rpartition("_")[0]
        others = [one.rpartition("_")[2] for one in index.operations if one.startswith(f"{direction}_")]
        way = f"; for a problem as if of {others[0]} read that (--dtype {others[0]})" if direction and others else ""
        if not re.fullmatch(OPERATION_PATTERN, operation):
            way = is_it(operation, index.operations)
        own = ", ".join(index.operations)
        raise UserError(f"{models / INDEX}: there is no model of operation {shown(operation)}; it has {own}{way}")
    if arch is not None and arch != index.arch:
        raise UserError(
            f"{models}: the models are for {index.arch}, not for {arch}; leave arch out, or give the folder of {arch}"
        )
    folder = models / index.operations[operation].folder
    spec = read_json(folder / SPEC)
    for name in ("arch", "device", "device_kind"):
        if isinstance(spec, dict) and spec.get(name) != (own := getattr(index, name)):
            other = shown(spec.get(name))
            raise UserError(f"{models / INDEX}: {name} is {own}, but the models are of {other}; {AGAIN}")
    return folder


def file_digests(models: Path) -> dict[str, str]:
    """Return the SHA-256 of every file but the index, by its path inside ``models``."""
    # Hidden files are no part of a model: Snakemake leaves a time stamp in every folder that a job makes.
    visible = (path for path in models.rglob("[!.]*") if path.is_file())
    files = sorted(path for path in visible if path != models / INDEX)
    return {path.relative_to(models).as_posix(): seal.file_digest(path) for path in files}
