"""How many kernels each cell of the named rule sets has, and whether that is what a reference file says.

A cell is an arch, a rule set and a request: one direction, ndim and data type (``cell``), one direction with 2D, 3D
and all data types (``per_variant``), or all directions so (``all``). Samples depend on the request as a whole.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from tileseer.core.csv_files import FIRST_LINE, read_csv
from tileseer.core.errors import UserError
from tileseer.facts.operations import DTYPES, VARIANTS
from tileseer.libraries.ck_tile.depthwise import DepthwiseConfig
from tileseer.libraries.enumeration import NDIMS, ListedKernel

COUNTED = (
    "enumerated_configs",
    "enumerated_unique_names",
    "arch_filtered_configs",
    "arch_filtered_unique_names",
    "of_which_depthwise",
)
BUILT_COLUMN = "built"
"""Unique names without a flag: our own column, not part of a comparison."""
ALL = "all"
JOINT_NDIMS = (2, 3)


class CountedCell(NamedTuple):
    """One row of the table; its fields are the first columns."""

    arch: str
    rule_set: str
    scope: str
    variant: str
    ndim: str
    dtype: str

    def request(self) -> tuple[list[str], list[int], list[str]]:
        """Return the directions, dimensionalities and data types that are enumerated together."""
        return (
            list(VARIANTS) if self.variant == ALL else [self.variant],
            [int(ndim) for ndim in self.ndim.split("+")],
            list(DTYPES) if self.dtype == ALL else [self.dtype],
        )


def counted_cells(archs: Sequence[str], rule_sets: Sequence[str]) -> Iterator[CountedCell]:
    """Yield every cell of some archs and rule sets."""
    joint = "+".join(map(str, JOINT_NDIMS))
    for arch, rule_set in product(archs, rule_sets):
        for variant, ndim, dtype in product(VARIANTS, NDIMS, DTYPES):
            yield CountedCell(arch, rule_set, "cell", variant, str(ndim), dtype)
        for variant in VARIANTS:
            yield CountedCell(arch, rule_set, "per_variant", variant, joint, ALL)
        yield CountedCell(arch, rule_set, ALL, ALL, joint, ALL)


def count_kernels(items: Sequence[ListedKernel]) -> dict[str, int]:
    """Return the counted columns of one enumeration."""
    every, passed = ([item.name for item in kept] for kept in (items, [item for item in items if not item.rule]))
    depthwise = sum(isinstance(item.kernel, DepthwiseConfig) for item in items)
    values = (len(every), len(set(every)), len(passed), len(set(passed)), depthwise)
    return dict(zip(COUNTED, values, strict=True)) | {
        BUILT_COLUMN: len({item.name for item in items if not item.flags})
    }


def read_reference(path: Path) -> dict[CountedCell, dict[str, int]]:
    """Read a file of counts (CSV with the columns of ``CountedCell`` and ``COUNTED``); ``UserError`` on any other."""
    table = read_csv(path)
    if missing := [column for column in (*CountedCell._fields, *COUNTED) if column not in table]:
        raise UserError(f"{path}: this is no table of counts: there is no column {missing[0]}")
    reference = {}
    for line, row in enumerate(table.to_dict("records"), FIRST_LINE):
        try:
            numbers = {column: int(row[column]) for column in COUNTED}
        except ValueError as error:
            raise UserError(f"{path}, line {line}: a count is no number: {error}") from error
        reference[CountedCell(*(row[column] for column in CountedCell._fields))] = numbers
    return reference


def difference(counted: dict[str, int], expected: dict[str, int]) -> str:
    """Return the counts that differ, or an empty string."""
    return ", ".join(
        f"{column} {counted[column]} != {expected[column]}" for column in COUNTED if counted[column] != expected[column]
    )
