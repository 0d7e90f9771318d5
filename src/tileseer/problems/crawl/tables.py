"""The tables of a crawl: networks with their origin, layers, and what was left out with the reason."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from importlib import metadata
from pathlib import Path

from tileseer.conv import layers
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.problems.crawl.splits import of_family
from tileseer.problems.crawl.zoo import Entry

LAYERS, NETWORKS, LEFT_OUT = "layers.csv", "networks.csv", "left_out.csv"
LEFT_OUT_COLUMNS = ("network", "run", "reason", "convolutions")


@dataclass(frozen=True)
class NetworkRow:
    """Where a network comes from, and on which side of the split its family is."""

    network: str
    family: str
    split: str
    task: str
    package: str
    version: str
    call: str


NETWORK_COLUMNS = tuple(NetworkRow.__dataclass_fields__)


def network_rows(entries: Iterable[Entry]) -> list[NetworkRow]:
    """Return one row a network of a zoo, with the installed version of its package."""
    return [
        NetworkRow(
            entry.name,
            entry.group.family,
            of_family(entry.group.family),
            entry.group.task,
            entry.group.package,
            version_of(entry.group.package),
            entry.group.call,
        )
        for entry in entries
    ]


def version_of(package: str) -> str:
    """Return the installed version of a package; a ``UserError`` says that it is missing."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError as error:
        raise UserError(f"{package} is not installed; config/problems/crawl.txt lists what the zoo needs") from error


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return CSV text with line feeds."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return buffer.getvalue()


def write(
    folder: Path,
    networks: Sequence[NetworkRow],
    found: Sequence[layers.Layer],
    left_out: Iterable[tuple[str, str, str, int]],
) -> None:
    """Write the three tables; a network without any layer stands only in the table of what was left out."""
    layers.assert_splits(found, str(folder / LAYERS))
    with_layers = {layer.network for layer in found}
    rows = [astuple(row) for row in networks if row.network in with_layers]
    write_text(folder / LAYERS, layers.to_text(found))
    write_text(folder / NETWORKS, csv_text(NETWORK_COLUMNS, rows))
    write_text(folder / LEFT_OUT, csv_text(LEFT_OUT_COLUMNS, left_out))


def read_networks(path: Path) -> list[NetworkRow]:
    """Read a table of networks."""
    return [NetworkRow(*row) for row in _rows(path, NETWORK_COLUMNS)]


def read_left_out(path: Path) -> list[tuple[str, str, str, int]]:
    """Read a table of what was left out."""
    return [(network, run, why, int(count)) for network, run, why, count in _rows(path, LEFT_OUT_COLUMNS)]


def _rows(path: Path, columns: Sequence[str]) -> list[list[str]]:
    header, *rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8")), strict=True)
    if tuple(header) != tuple(columns) or any(len(row) != len(columns) for row in rows):
        raise UserError(f"{path}: is not a table with the columns {','.join(columns)}; make it again")
    return rows


def family_of(networks: Iterable[NetworkRow]) -> Mapping[str, str]:
    """Return the family of each network."""
    return {row.network: row.family for row in networks}


def count_by(networks: Iterable[NetworkRow], field: str) -> Counter[str]:
    """Return how many networks have each value of a field."""
    return Counter(getattr(row, field) for row in networks)
