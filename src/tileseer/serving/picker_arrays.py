"""What the arrays of ``selector.npz`` have to be, so that a file of others is refused and never run.

Its hashes may be right all the same: an index is as easy to write as the file.
"""

import zipfile
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np

from tileseer.conv.problem import DIMS
from tileseer.core.tables import Table
from tileseer.serving.forest import BITS
from tileseer.serving.program import Step

INTEGER, TRUTH, REAL = "iu", "b", "f"
LARGEST = 1 << 20
"""More candidates no model has."""
LARGEST_TABLE = 1 << 27
"""Nor more numbers in the table of its trees: 1 GiB."""


class About(Table):
    """What is no array."""

    operation: str
    arch: str
    device: str
    device_kind: str
    source: str | None
    weight: float | None
    stages: list[tuple[int, float]]
    begins: tuple[int, int, int]
    finalists: tuple[int, int]
    single: list[int]
    paired: list[int]
    programs: dict[str, tuple[dict[str, int], list[Step], list[int]]]
    candidates: list[str]
    kernels: list[str]


def read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file; ``ValueError`` where one would be larger than the file."""
    with zipfile.ZipFile(path) as archive:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
            raise ValueError("an array is compressed")
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def check(arrays: Mapping[str, np.ndarray], about: About) -> None:
    """Raise a ``ValueError`` that names the first array that does not fit the others."""
    count, classes = len(about.candidates), arrays["always"].size
    features, trees = len(arrays["thresholds"]), len(arrays["leaf"])
    rows = int(arrays["thresholds"].sum()) + features
    if count != len(about.kernels) or count > LARGEST or rows * trees > LARGEST_TABLE:
        raise ValueError("candidates, kernels or trees do not fit each other")
    nodes, known = len(arrays["node_tree"]), len(arrays["known_place"])
    expected: dict[str, tuple[str, tuple[int, ...], int, int]] = {
        "row": (INTEGER, (count,), 0, count),
        "split_k": (INTEGER, (count,), -1, LARGEST),
        "pruned": (TRUTH, (count,), 0, 2),
        "class": (INTEGER, (count,), 0, classes),
        "always": (TRUTH, (classes,), 0, 2),
        "threshold": (REAL, (rows - features,), 0, 0),
        "thresholds": (INTEGER, (features,), 0, LARGEST),
        "fixed": (INTEGER, (len(arrays["fixed"]), count), 0, rows),
        "node_tree": (INTEGER, (nodes,), 0, trees),
        "node_row": (INTEGER, (nodes,), 0, rows),
        "node_begin": (INTEGER, (nodes,), 0, BITS),
        "node_end": (INTEGER, (nodes,), 1, BITS + 1),
        "leaf": (INTEGER, (trees, BITS), -(1 << 31), 1 << 31),
        "known_dims": (INTEGER, (known, len(DIMS)), 0, 1 << 31),
        "known_place": (INTEGER, (known,), 0, count),
    }
    for name, (kinds, shape, least, end) in expected.items():
        values = arrays[name]
        if values.dtype.kind not in kinds or values.shape != shape:
            raise ValueError(f"{name} is {values.dtype} of shape {values.shape}, not of {shape}")
        if values.size and end and not (values.min() >= least and values.max() < end):
            raise ValueError(f"{name} has a value that is not in {least} to {end - 1}")
    _check_numbers(about, count, trees, features)
    if np.unique(arrays["row"]).size != count or (arrays["node_begin"] >= arrays["node_end"]).any():
        raise ValueError("row or node_end do not fit")
    for program, size in (("rules", classes), ("features", count)):
        for name, values in arrays.items():
            fits = values.dtype.kind in "biuf" and values.shape in ((), (size,))
            if name.startswith(f"{program}_") and not fits:
                raise ValueError(f"{name} is {values.dtype} of shape {values.shape}, not of {(size,)}")


def _check_numbers(about: About, count: int, trees: int, features: int) -> None:
    first, middle, last = about.begins
    sizes = middle - first, last - middle
    if first or last != count or any(not 0 <= n <= m for n, m in zip(about.finalists, sizes, strict=True)):
        raise ValueError("begins or finalists do not fit the candidates")
    ends = [0, *(end for end, _ in about.stages), trees + 1]
    if any(a >= b for a, b in pairwise(ends)) or any(margin < 0 for _, margin in about.stages):
        raise ValueError("stages do not fit the trees")
    if any(not 0 <= feature < features for feature in (*about.single, *about.paired)):
        raise ValueError("a feature has no thresholds")
