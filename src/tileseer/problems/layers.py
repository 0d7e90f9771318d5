"""Layers of networks: the CSV that ``tileseer crawl`` writes and the problems stage reads.

One row is one distinct convolution of one run of a network. It has the columns ``network``, ``layer`` and the 19
dimensions; a crawled table has ``family``, ``run``, ``layout``, ``directions``, ``occurrences`` and ``split`` as well.
A table without them means: a family of its own, one run, all directions, once.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from tileseer.core.csv_files import read_csv
from tileseer.core.errors import UserError, shown
from tileseer.facts.operations import VARIANTS
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS, LEAST, Problem, ndim_of
from tileseer.problems.problem_csv import check_problems, of_distinct, require_cells, whole_numbers

LAYER_SPLITS = ("train", "validation", "test")
"""What a layer may be used for; all layers of one family, at any batch size, have the same."""
LAYER_LAYOUTS = ("", "NCL", "NCHW", "NCDHW")
"""Tensor layout in the network, empty where it is not known; NCL is a 1D convolution, written as 2D with Hi = 1."""
REQUIRED_LAYER_COLUMNS = ("network", "layer", *DIMS)
OPTIONAL = dict.fromkeys(("family", "run", "layout"), "")
OPTIONAL |= {"directions": "+".join(VARIANTS), "occurrences": "1", "split": "test"}
"""Columns that a table may lack, and what it then means."""
_OF_LAYERS = ("occurrences", "directions", "layout", "split", "family")
"""Columns in the order of the fields of ``Layer`` behind its dimensions."""
FORMULA_STARTS = ("=", "+", "-", "@")
LAYER_COLUMNS = ("network", "family", "run", "layer", "layout", "directions", "occurrences", "split", *DIMS)


@dataclass(frozen=True)
class Layer:
    """A convolution that a network runs ``occurrences`` times; C and K are totals over the groups."""

    network: str
    run: str
    layer: str
    """Dotted name of the first module that runs it."""
    dims: tuple[int, ...]
    """The 19 dimensions in the order of ``DIMS``."""
    occurrences: int = 1
    directions: tuple[str, ...] = VARIANTS
    """Which directions the run needs: inference one, training up to three."""
    layout: str = ""
    split: str = "test"
    network_family: str = ""
    """Networks of one family are on one side of the split; empty for a network on its own."""

    @property
    def problem(self) -> Problem:
        """The forward bf16 problem, for what does not depend on direction and data type."""
        return self.problem_for(Operation("forward", "bf16"))

    @property
    def ndim(self) -> int:
        """Spatial dimensions."""
        return ndim_of(dict(zip(DIMS, self.dims, strict=True)))

    @property
    def layer_family(self) -> tuple[int, ...]:
        """The dimensions less the batch size: what the splits keep together."""
        return self.dims[1:]

    @property
    def flop(self) -> int:
        """FLOP of all occurrences in one direction: 2 N K Do Ho Wo (C/G) Z Y X each."""
        return self.occurrences * self.problem.flop

    def problem_for(self, operation: Operation) -> Problem:
        """Return the problem of one direction and data type."""
        return Problem.from_dims(operation.variant, operation.dtype, **dict(zip(DIMS, self.dims, strict=True)))


@dataclass(frozen=True)
class NetworkRun:
    """The layers that one run of a network needs in one direction."""

    network: str
    run: str
    layers: tuple[Layer, ...]

    @cached_property
    def flop(self) -> int:
        """FLOP of all layers."""
        return sum(layer.flop for layer in self.layers)

    def share(self, layer: Layer) -> float:
        """Return the share of the run's FLOP that the occurrences of ``layer`` have, 0 to 1."""
        return layer.flop / self.flop


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return the CSV text with line feeds; a text that a spreadsheet would take for a formula gets a ' in front."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(
            [f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) else cell for cell in row]
        )
    return buffer.getvalue()


def layers_csv(layers: Iterable[Layer]) -> str:
    """Return a table as CSV text, in order."""
    rows = (
        (e.network, e.network_family, e.run, e.layer, e.layout, "+".join(e.directions), e.occurrences, e.split, *e.dims)
        for e in layers
    )
    return csv_text(LAYER_COLUMNS, rows)


def read_layers(path: Path) -> list[Layer]:
    """Read a table; a ``UserError`` names the line of the first row that is no valid convolution."""
    table = read_csv(path, REQUIRED_LAYER_COLUMNS)
    fault = missing = next((f"{name!r} is missing" for name in REQUIRED_LAYER_COLUMNS if name not in table), "")
    fault = fault or next((f"{shown(name)} is not one of them" for name in table if name not in LAYER_COLUMNS), "")
    if fault:
        way = "" if "network" in table else f"; tileseer crawl --problems {path} --output LAYERS.csv makes such a table"
        if missing and not way:
            way = "; without network and layer, tileseer crawl --problems FILE --output LAYERS.csv fills in the rest"
        raise UserError(
            f"{path}, line 1: {fault}; the columns must be {','.join(REQUIRED_LAYER_COLUMNS)}, and may be "
            f"{','.join(OPTIONAL)}, in any order{way}"
        )
    table = table.assign(**{name: text for name, text in OPTIONAL.items() if name not in table})
    for name in (name for name in LAYER_COLUMNS if name not in DIMS):
        printable = of_distinct(table[name], lambda texts: texts.map(str.isprintable))
        require_cells(path, table[name], printable, "it has characters that cannot be printed; remove them")
    for name in ("network", "layer"):
        require_cells(path, table[name], table[name] != "", "network and layer must be named")
    for name, allowed in (("split", LAYER_SPLITS), ("layout", LAYER_LAYOUTS)):
        words = ", ".join(word or "empty" for word in allowed)
        require_cells(path, table[name], table[name].isin(allowed), f"it must be one of {words}")
    directions = of_distinct(table["directions"], lambda texts: texts.str.split("+").map(tuple))
    known = directions.map(set(VARIANTS).issuperset)
    require_cells(path, table["directions"], known, f"it must be some of {', '.join(VARIANTS)} with + between them")
    dims = pd.DataFrame({name: whole_numbers(path, table[name], LEAST[name]) for name in DIMS})
    check_problems(path, dims)
    occurrences = whole_numbers(path, table["occurrences"], least=1)
    table = table.assign(**dims, occurrences=occurrences, directions=directions)
    rows = zip(*(table[name].tolist() for name in DIMS), strict=True)
    network, run, layer, *rest = (table[name].tolist() for name in ("network", "run", "layer", *_OF_LAYERS))
    return [Layer(*values) for values in zip(network, run, layer, rows, *rest, strict=True)]


def read_split_layers(path: Path) -> list[Layer]:
    """Read a table; a ``UserError`` also says which layer of it is in two splits."""
    found = read_layers(path)
    assert_splits(found, str(path))
    return found


def runs_of(layers: Iterable[Layer], direction: str) -> list[NetworkRun]:
    """Return the runs that need ``direction``, each with its layers in order."""
    layers_of_run: dict[tuple[str, str], list[Layer]] = {}
    for layer in layers:
        if direction in layer.directions:
            layers_of_run.setdefault((layer.network, layer.run), []).append(layer)
    return [NetworkRun(network, run, tuple(own)) for (network, run), own in layers_of_run.items()]


def assert_splits(layers: Iterable[Layer], where: str) -> None:
    """Stop with a ``UserError`` if a layer family, at any batch size, has layers in two splits."""
    first: dict[tuple[int, ...], Layer] = {}
    for layer in layers:
        other = first.setdefault(layer.layer_family, layer)
        if other.split != layer.split:
            raise UserError(
                f"{where}: {layer.network} {layer.layer} is in split {layer.split}, but the same layer is in split "
                f"{other.split} as {other.network} {other.layer}: an efficiency on it would not be one on unseen layers"
            )
