"""Layers of networks: the CSV that ``tileseer crawl`` writes and the problems stage reads.

One row is one distinct convolution of one run of a network. It has the columns ``network``, ``layer`` and the 19
dimensions; a crawled table has ``family``, ``run``, ``layout``, ``directions``, ``occurrences`` and ``split`` as well.
A table without them means: a family of its own, one run, all directions, once.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tileseer.config.operations import VARIANTS
from tileseer.core.errors import UserError, shown
from tileseer.core.yaml_files import read_utf8
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS, INT32_MAX, Problem

SPLITS = ("train", "validation", "test")
"""What a layer may be used for; all layers of one family, at any batch size, have the same."""
LAYOUTS = ("", "NCL", "NCHW", "NCDHW")
"""Tensor layout in the network, empty where it is not known; NCL is a 1D convolution, written as 2D with Hi = 1."""
REQUIRED = ("network", "layer", *DIMS)
OPTIONAL = {
    "family": "", "run": "", "layout": "", "directions": "+".join(VARIANTS), "occurrences": "1", "split": "test",
}  # fmt: skip
"""Columns that a table may lack, and what it then means."""
FORMULA = ("=", "+", "-", "@")
COLUMNS = ("network", "family", "run", "layer", "layout", "directions", "occurrences", "split", *DIMS)


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
    def family(self) -> tuple[int, ...]:
        """The dimensions less the batch size: what the splits keep together."""
        return self.dims[1:]

    @property
    def flop(self) -> int:
        """FLOP of all occurrences in one direction: 2 N K Do Ho Wo (C/G) Z Y X each."""
        return self.occurrences * self.problem.flop

    def problem_for(self, operation: Operation) -> Problem:
        """The problem of one direction and data type."""
        return Problem.from_dims(operation.variant, operation.dtype, **dict(zip(DIMS, self.dims, strict=True)))


@dataclass(frozen=True)
class NetworkRun:
    """The layers that one run of a network needs in one direction."""

    network: str
    run: str
    layers: tuple[Layer, ...]
    flop: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "flop", sum(layer.flop for layer in self.layers))

    def share(self, layer: Layer) -> float:
        """Share of the run's FLOP that the occurrences of ``layer`` have, 0 to 1."""
        return layer.flop / self.flop


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """CSV text with line feeds; a text that a spreadsheet would take for a formula gets a ' in front."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    plain = (
        [f"'{cell}" if str(cell).startswith(FORMULA) and type(cell) is str else cell for cell in row] for row in rows
    )
    writer.writerows([columns, *plain])
    return buffer.getvalue()


def layers_csv(layers: Iterable[Layer]) -> str:
    """A table as CSV text, in order."""
    first = "network", "network_family", "run", "layer", "layout"
    rows = (
        (*(getattr(e, name) for name in first), "+".join(e.directions), e.occurrences, e.split, *e.dims) for e in layers
    )
    return csv_text(COLUMNS, rows)


class Network(NamedTuple):
    """What a table says of a network as a whole."""

    family: str
    """Its own name where it has no family."""
    trains: bool
    """Whether layers of it are in the split ``train``."""


def read_layers(path: Path) -> list[Layer]:
    """Read a table; a ``UserError`` names the line of the first row that is no valid convolution."""
    return [_layer(fields, where) for where, fields in _rows(path)]


def read_networks(path: Path) -> dict[str, Network]:
    """The networks of a table, whose convolutions are not looked at: an eighth of the time of ``read_layers``."""
    networks: dict[str, Network] = {}
    for _, fields in _rows(path):
        name = fields["network"]
        trains = fields["split"] == "train" or (name in networks and networks[name].trains)
        networks[name] = Network(fields["family"] or name, trains)
    return networks


def _rows(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """File and line of each row, and its fields."""
    rows = csv.reader(io.StringIO(read_utf8(path)), strict=True)
    try:
        header = next(rows, [])
        _check_columns(header, path)
        for row in rows:
            where = f"{path}: line {rows.line_num}"
            if len(row) != len(header):
                raise UserError(f"{where}: {len(row)} fields, but {len(header)} are needed")
            yield where, OPTIONAL | dict(zip(header, row, strict=True))
    except csv.Error as error:
        raise UserError(f"{path}: line {max(rows.line_num, 1)}: {error}") from error


def _check_columns(header: Sequence[str], path: Path) -> None:
    missing = [name for name in REQUIRED if name not in header]
    unknown = [name for name in header if name not in (*REQUIRED, *OPTIONAL)]
    if missing:
        fault = f"{missing[0]!r} is missing"
    elif unknown:
        fault = f"{shown(unknown[0])} is not one of them"
    elif len(set(header)) < len(header):
        fault = "one is repeated"
    else:
        return
    raise UserError(
        f"{path}: line 1: {fault}; the columns must be {','.join(REQUIRED)}, and may be {','.join(OPTIONAL)}, "
        "in any order"
    )


def _layer(fields: Mapping[str, str], where: str) -> Layer:
    if not fields["network"] or not fields["layer"]:
        raise UserError(f"{where}: network and layer must be named")
    directions = tuple(fields["directions"].split("+"))
    if wrong := [direction for direction in directions if direction not in VARIANTS]:
        raise UserError(f"{where}: directions has {shown(wrong[0])}; it must be some of {', '.join(VARIANTS)} with +")
    for name, text in fields.items():
        if not text.isprintable():
            raise UserError(
                f"{where}: {name} is {shown(text)}, which has characters that cannot be printed; remove them"
            )
    for name, allowed in (("split", SPLITS), ("layout", LAYOUTS)):
        if fields[name] not in allowed:
            words = ", ".join(word or "empty" for word in allowed)
            raise UserError(f"{where}: {name} is {shown(fields[name])}; it must be one of {words}")
    layer = Layer(
        network=fields["network"],
        run=fields["run"],
        layer=fields["layer"],
        dims=tuple(_number(name, fields[name], where) for name in DIMS),
        occurrences=_number("occurrences", fields["occurrences"], where, least=1),
        directions=directions,
        layout=fields["layout"],
        split=fields["split"],
        network_family=fields["family"],
    )
    try:
        _ = layer.problem
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    return layer


def _number(name: str, text: str, where: str, least: int = 0) -> int:
    # No longer text is a number that fits, and Python refuses to read a very long one.
    if not (text.isascii() and text.isdigit() and len(text) <= 10) or not least <= int(text) <= INT32_MAX:
        raise UserError(f"{where}: {name} is {shown(text)}; it must be a whole number from {least} to {INT32_MAX}")
    return int(text)


def runs_of(layers: Iterable[Layer], direction: str) -> list[NetworkRun]:
    """Runs that need ``direction``, each with its layers in order."""
    layers_of_run: dict[tuple[str, str], list[Layer]] = {}
    for layer in layers:
        if direction in layer.directions:
            layers_of_run.setdefault((layer.network, layer.run), []).append(layer)
    return [NetworkRun(network, run, tuple(own)) for (network, run), own in layers_of_run.items()]


def assert_splits(layers: Iterable[Layer], where: str) -> None:
    """Stop with a ``UserError`` if a layer family, at any batch size, has layers in two splits."""
    first: dict[tuple[int, ...], Layer] = {}
    for layer in layers:
        other = first.setdefault(layer.family, layer)
        if other.split != layer.split:
            raise UserError(
                f"{where}: {layer.network} {layer.layer} is in split {layer.split}, but the same layer is in split "
                f"{other.split} as {other.network} {other.layer}: an efficiency on it would not be one on unseen layers"
            )
