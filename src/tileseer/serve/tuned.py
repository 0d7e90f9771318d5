"""Choices that were timed once, remembered beside a model: the fastest of a short list, by problem and device.

``MODELS.tuned/OPERATION.tsv`` is a table with tabs between its fields, and one header line: the 19 dimensions (the
order of ``problem.DIMS``), ``candidate``, ``time_ms`` (of one launch), ``timed`` (how many candidates were timed),
``device`` (the product, as its driver reports it) and ``device_kind``. Time and number are 0 where PyTorch's switch
remembers what it did not time. The first row counts that has the problem, the device, and a candidate that the model
has: who times a problem again removes the file. Lines end with a line feed, numbers have the form in which they are
written, texts are of printable ASCII; another line is damaged and skipped.

Several processes may remember at once, in Python and in C++ (``workflow/templates/serving/tuned.hpp``): each one locks
the folder (``flock``), reads the file, and puts a whole new one in its place.
"""

from __future__ import annotations

import functools
import math
import os
import re
import sys
from collections.abc import Container, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tileseer.core import atomic, locks
from tileseer.core.errors import UserError, shown
from tileseer.core.places import find_file
from tileseer.core.reading import LARGEST_TABLE, path_of, read_bytes
from tileseer.measure.device import DEVICE_KINDS
from tileseer.problems.problem import DIMS, INT32_MAX

_COUNT, _TIME, _TEXT = (
    r"(?:0|[1-9][0-9]{0,9})",
    r"[0-9]{1,20}(?:\.[0-9]{1,20})?(?:e[-+][0-9]{1,3})?",
    r"[!-~](?:[ -~]*[!-~])?",
)
_LINE = re.compile(
    rf"(?:{_COUNT}\t){{{len(DIMS)}}}{_TEXT}\t{_TIME}\t{_COUNT}\t{_TEXT}\t(?:{'|'.join(DEVICE_KINDS)})", re.ASCII
)
TUNED_HEADER = "\t".join((*DIMS, "candidate", "time_ms", "timed", "device", "device_kind"))


class Choice(NamedTuple):
    """The fastest candidate of one problem on one device."""

    dims: tuple[int, ...]
    """In the order of ``problem.DIMS``."""
    candidate: str
    time_ms: float
    timed: int
    """How many candidates were timed, this one included."""
    device: str
    """As its driver reports it, or the product of a simulated or recorded device."""
    device_kind: str


def tuned_path(models: Path, operation: str, kind: str = "") -> Path:
    """Return the file of a model directory's operation.

    ``kind``: what has a file of its own, such as a layout that is not the model's first.
    """
    folder = Path(os.path.abspath(models))
    return folder.with_name(f"{folder.name}.tuned") / f"{operation}{kind and '_'}{kind}.tsv"


def is_device(device: str, product: str) -> bool:
    """Return whether a device's own name is that of a product: ``NVIDIA H200`` is ``sm_90_h200``."""
    words = device.lower().split()
    names = {*words, *map("".join, pairwise(words))}
    return device == product or not names.isdisjoint(product.split("_")[1:])


def refuse_unknown(device: str, product: str) -> None:
    """Raise a ``UserError`` for a device that is not of the target of ``product``, nor one that its vendor may have."""
    # Imported here: a pick for the model's own device needs no table.
    from tileseer.facts.hardware import read_products

    table = find_file(Path("config/hardware.yaml"))
    known = read_products(table)
    target = known[product].arch if product in known else product.split("_")[0]
    own = [name for name, gpu in known.items() if gpu.arch == target]
    is_own = any(is_device(device, name) for name in own)
    other = next((gpu.arch for name, gpu in known.items() if gpu.arch != target and is_device(device, name)), "")
    if other and not is_own:
        raise UserError(
            f"device {shown(device)} is a {other}, and the candidates are those of {target}; give models of {other}, "
            f"or one of {', '.join(own)} ({table})"
        )
    brand = "NVIDIA" if product.startswith("sm_") else "AMD"
    # No table has every GPU of a vendor: the whole name that a driver reports says what it is.
    is_reported = re.fullmatch(rf"{brand} .*[0-9].*", device)
    if not is_reported and not is_own:
        raise UserError(
            f"device {shown(device)} was not tuned for, and is none of {', '.join(own)} ({table}); give one of these, "
            f"its name as the driver reports it ({brand} ...), or leave it out"
        )


def read_choices(path: Path | str) -> list[Choice]:
    """Return the choices of a file in its order, none without the file; a warning counts the damaged lines.

    ``UserError`` if the file is no table of choices.
    """
    path = path_of("path", path, "a file, MODELS.tuned/OPERATION.tsv")
    if path.parent.is_file():
        raise UserError(f"{path.parent}: is a file, where the folder of tuned choices would be; move it away")
    if not os.path.lexists(path):
        return []
    header, *lines = read_bytes(path, LARGEST_TABLE).decode("latin-1").split("\n")
    if header != TUNED_HEADER:
        raise UserError(
            f"{path}: line 1: the columns are not those of tuned choices; move the file away and tune again"
        )
    read = [_choice(line) for line in lines]
    damaged = [number for number, (line, choice) in enumerate(zip(lines, read, strict=True), 2) if line and not choice]
    if damaged:
        _warn(f"{path}: skipped {len(damaged)} damaged lines, first line {damaged[0]}")
    return [choice for choice in read if choice]


def usable_choices(path: Path) -> list[Choice]:
    """Return the choices of a file; one that cannot be read is a warning, for who can pick without it."""
    try:
        return read_choices(path)
    except (UserError, OSError) as error:
        _warn(f"{error}; its choices are not used")
        return []


def warn_of_unknown(path: Path, choices: Iterable[Choice], known: Container[str]) -> None:
    """Tell of choices of candidates that the models do not have: they are not used."""
    if others := [choice.candidate for choice in choices if choice.candidate not in known]:
        _warn(f"{path}: {len(others)} choices name no candidate of the models, and are not used; first {others[0]}")


@functools.cache
def _warn(message: str) -> None:
    """Print a warning once."""
    print(f"warning: {message}", file=sys.stderr)


def remember(path: Path, choices: Iterable[Choice]) -> None:
    """Add choices to the file, behind those that are there; what it has already is not repeated."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with locks.hold_folder(path.parent):
        before = read_choices(path)
        seen = {_subject(choice) for choice in before}
        after = [*before, *(choice for choice in choices if _subject(choice) not in seen)]
        atomic.write_text(path, "".join(f"{line}\n" for line in (TUNED_HEADER, *map(_line, after))))


def _subject(choice: Choice) -> tuple[object, ...]:
    return choice.dims, choice.candidate, choice.device, choice.device_kind


def _line(choice: Choice) -> str:
    device = " ".join(re.findall("[!-~]+", choice.device, re.ASCII))
    fields: Sequence[object] = (choice.candidate, f"{choice.time_ms:.9g}", choice.timed, device, choice.device_kind)
    return "\t".join(map(str, (*choice.dims, *fields)))


def _choice(line: str) -> Choice | None:
    """Return the choice of a line; None if the line is damaged."""
    if not _LINE.fullmatch(line):
        return None
    fields = line.split("\t")
    candidate, time_ms, timed, device, kind = fields[len(DIMS) :]
    numbers, time = [int(field) for field in (*fields[: len(DIMS)], timed)], float(time_ms)
    if max(numbers) > INT32_MAX or not time < math.inf or (time > 0) != (numbers[-1] > 0):
        return None
    return Choice(tuple(numbers[:-1]), candidate, time, numbers[-1], device, kind)
