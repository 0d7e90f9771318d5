"""The tables of a crawl: networks with their origin, layers with their split, and what was left out and why."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.problems import layers
from tileseer.problems.layers import Layer
from zoo.entries import Entry

LAYERS, NETWORKS, LEFT_OUT = "layers.csv", "networks.csv", "left_out.csv"
# The project's first name: another salt would deal every network anew.
SALT = "tilewright split 1"
BOUNDS = (("train", 55), ("validation", 70), ("test", 100))
"""Upper bounds of each split in percent of the families' hashes."""


class NetworkRow(NamedTuple):
    """Where a network comes from, and on which side of the split its family is."""

    network: str
    family: str
    split: str
    task: str
    package: str
    version: str
    call: str


class LeftOut(NamedTuple):
    """Convolutions of a run that are not in the table of layers; none of them where the run failed."""

    network: str
    run: str
    reason: str
    convolutions: int


def network_rows(entries: Iterable[Entry]) -> list[NetworkRow]:
    """One row a network of a zoo, with the installed version of its package."""
    groups = [(entry.name, entry.group) for entry in entries]
    return [
        NetworkRow(name, g.family, split_of(g.family), g.task, g.package, version_of(g.package), g.call)
        for name, g in groups
    ]


def version_of(package: str) -> str:
    """Installed version of a package; a ``UserError`` says that it is missing."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError as error:
        raise UserError(f"{package} is not installed; config/problems/crawl.txt lists what the zoo needs") from error


def split_of(family: str) -> str:
    """Split of a network family: its hash decides, so that one more family moves no other."""
    share = int(hashlib.sha256(f"{SALT}:{family}".encode()).hexdigest()[:8], 16) % 100
    return next(split for split, bound in BOUNDS if share < bound)


def with_splits(found: Sequence[Layer], family_of: Mapping[str, str]) -> list[Layer]:
    """Layers with their splits and families; ``family_of`` names the family of each network.

    A layer that networks of several splits have, at any batch size, belongs to test before validation before train:
    test networks stay whole, and what they have is not learnt from.
    """
    rank = {split: place for place, (split, _) in enumerate(BOUNDS)}
    highest: dict[tuple[int, ...], str] = {}
    for layer in found:
        split = split_of(family_of[layer.network])
        if rank[split] >= rank[highest.get(layer.layer_family, split)]:
            highest[layer.layer_family] = split
    return [
        replace(layer, split=highest[layer.layer_family], network_family=family_of[layer.network]) for layer in found
    ]


def write(folder: Path, networks: Sequence[NetworkRow], found: Sequence[Layer], left_out: Iterable[LeftOut]) -> None:
    """Write the three tables; a network without any layer stands only in the table of what was left out."""
    layers.assert_splits(found, str(folder / LAYERS))
    with_layers = {layer.network for layer in found}
    rows = [row for row in networks if row.network in with_layers]
    write_text(folder / LAYERS, layers.layers_csv(found))
    write_text(folder / NETWORKS, layers.csv_text(NetworkRow._fields, rows))
    write_text(folder / LEFT_OUT, layers.csv_text(LeftOut._fields, left_out))
