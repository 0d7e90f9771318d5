"""The zoo file: which networks of which packages are run, on which inputs.

A group shares package, family, task and the callable that makes its networks. Each network has a list of runs,
``train 64@3x224x224`` or ``infer 1@3x800x1344``: the mode, the batch size, and the shape of one input.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from tileseer.core.errors import UserError, shown
from tileseer.core.strict_tables import StrictModel, read_yaml_table

TASKS = (
    "classification", "detection", "segmentation", "generation", "video", "medical", "speech", "pose", "language",
    "restoration",
)  # fmt: skip
_EXTENT = "[0-9]{1,9}"
_RUN = re.compile(f"(train|infer) ({_EXTENT})@({_EXTENT}(?:x{_EXTENT})*)")


class Package(StrictModel):
    """A package whose networks are run."""

    licence: str = Field(min_length=1)


class Network(StrictModel):
    """One network of a group."""

    runs: list[str] = Field(min_length=1)
    arguments: dict[str, Any] = Field({})
    """Keyword arguments of the callable, or of the configuration class, besides the group's."""


class Group(StrictModel):
    """Networks of one family that are made in the same way."""

    package: str
    family: str = Field(pattern=r"^[a-z0-9_]+$")
    """Networks of one family are on one side of the split."""
    task: str
    call: str = Field(pattern=r"^[\w.]+:[\w.]+$")
    """``module:callable`` that makes a network."""
    config: str | None = Field(None, pattern=r"^[\w.]+:[\w.]+$")
    """``module:class`` of a configuration that takes the arguments; the callable is given its instance."""
    by_name: bool = False
    """Give the network's name to the callable as its first argument."""
    feed: str = "image"
    arguments: dict[str, Any] = Field({})
    networks: dict[str, list[str] | Network] = Field(min_length=1)
    """Name to its runs, or to its runs and arguments."""


class ZooFile(StrictModel):
    """A zoo file."""

    packages: dict[str, Package]
    groups: list[Group] = Field(min_length=1)


@dataclass(frozen=True)
class NetworkRun:
    """One run of a network: ``trained`` or inference, on an input of ``shape`` (batch first)."""

    text: str
    trained: bool
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Entry:
    """A network of the zoo."""

    name: str
    group: Group
    arguments: dict[str, Any]
    runs: tuple[NetworkRun, ...]


def parse_run(text: str, where: str) -> NetworkRun:
    """The run that ``text`` describes."""
    match = _RUN.fullmatch(text)
    if not match:
        raise UserError(f"{where}: {shown(text)} is no run such as 'train 64@3x224x224' or 'infer 1@3x480x640'")
    shape = (int(match[2]), *(int(extent) for extent in match[3].split("x")))
    if 0 in shape:
        raise UserError(f"{where}: {text!r} has an extent of 0")
    return NetworkRun(text, match[1] == "train", shape)


def load(path: Path) -> list[Entry]:
    """Read a zoo file; a ``UserError`` names what is wrong in it."""
    content = read_yaml_table(path, ZooFile)
    entries: dict[str, Entry] = {}
    for group in content.groups:
        where = f"{path}: family {group.family}"
        if group.package not in content.packages:
            raise UserError(f"{where}: package {group.package!r} is not listed under packages with its licence")
        if group.task not in TASKS:
            raise UserError(f"{where}: task is {group.task!r}; use one of {', '.join(TASKS)}")
        for name, given in group.networks.items():
            network = given if isinstance(given, Network) else Network(runs=given)
            if name in entries:
                raise UserError(f"{where}: network {name} is listed twice")
            runs = tuple(parse_run(text, f"{where}: {name}") for text in network.runs)
            entries[name] = Entry(name, group, {**group.arguments, **network.arguments}, runs)
    return [entries[name] for name in sorted(entries)]
