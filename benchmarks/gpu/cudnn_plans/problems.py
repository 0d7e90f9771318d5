"""Write the list of cases: which convolutions, in which order, so that a run cut at any time leaves a balanced set.

The problems are those that the problems stage would choose of config/problems for training (the design and layers of
the train split) and for validation (whole runs of networks of the test split), less what is too large to be measured
often. The list goes round the directions, three training problems to one of validation. A first round has each problem
in one of the two data types, in turn. Further rounds have more layers of training networks: of each grouping as many as
``MORE`` says, since the first one has few with groups. The last round has the problems of the first with the other data
type. The layers of a run keep to one data type.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path

from tileseer.conv import layers
from tileseer.conv.operation import VARIANTS, Operation
from tileseer.conv.problem import DIMS, FIELDS, Problem
from tileseer.problems import design, problem_sets, training_set
from tileseer.problems.problem_sets import Entry
from tileseer.settings.inputs import ProblemsSettings

DTYPES = ("bf16", "fp16")
SETTINGS = ProblemsSettings(design=560, training_layers=450, validation_problems=450)
MOST_GFLOP = 400.0
MOST_ELEMENTS = 1 << 28
TRAINING_TO_VALIDATION = 3
MORE = ({"grouped": 80, "depthwise": 24, "dense": 240}, {"grouped": 37, "depthwise": 17, "dense": 190})
"""Layers of a direction in each of the further rounds."""
COLUMNS = ("problem_key", "split", "network", "layer", *FIELDS)
Row = tuple[object, ...]
Given = tuple[Problem, str, str, int]
"""A problem with its origin, its layer and the turn of its data type."""


def small(problem: Problem) -> bool:
    """Whether a problem can be measured with all of its plans in a few seconds."""
    return problem.flop <= MOST_GFLOP * 1e9 and problem.largest_tensor <= MOST_ELEMENTS


def problems(variant: str) -> tuple[list[Given], list[Given]]:
    """Training and validation problems of a direction in order."""
    operation = Operation(variant, "bf16")
    chosen = training_set.enough(SETTINGS, operation, (2, 3))
    training = [entry for entry in chosen.training if small(entry.problem)]
    training.sort(key=lambda entry: hashlib.sha256(f"order {entry.problem.key}".encode()).hexdigest())
    train = [(entry.problem, entry.origin, entry.layer, place) for place, entry in enumerate(training)]
    validation: dict[str, Given] = {}
    # Some networks have layers of both splits: those are not unseen.
    known = {layer.network for layer in layers.read(Path(SETTINGS.networks)) if layer.split == "train"}
    kept = {entry.problem.key for entry in chosen.validation if small(entry.problem)}
    # Smallest runs first: whole networks are there early.
    for turn, run in enumerate(sorted(chosen.runs, key=lambda run: (len(run.layers), run.network, run.run))):
        for layer in () if run.network in known else run.layers:
            problem = layer.problem_for(operation)
            if problem.key in kept:
                validation.setdefault(problem.key, (problem, run.network, layer.layer, turn))
    return train, list(validation.values())


def more(variant: str) -> list[list[Given]]:
    """Layers of training networks whose layer family ``problems`` has nowhere, by round, the groupings evenly mixed."""
    operation = Operation(variant, "bf16")
    chosen = training_set.enough(SETTINGS, operation, (2, 3))
    known = {entry.problem.layer_family for entry in (*chosen.training, *chosen.validation)}
    groupings: dict[str, list[layers.Layer]] = {grouping: [] for grouping in MORE[0]}
    for layer in layers.read(Path(SETTINGS.networks)):
        problem = layer.problem_for(operation)
        if problem.layer_family not in known and small(problem):
            groupings[design.kind_of(layer.dims).grouping].append(layer)
    rounds: list[list[tuple[float, Entry]]] = [[] for _ in MORE]
    for grouping, found in groupings.items():
        total = sum(wanted[grouping] for wanted in MORE)
        sample = problem_sets.sample_layers(found, "train", operation, total, SETTINGS.seed)
        entries = problem_sets.of_layers(sample, operation, (2, 3))
        for wanted, placed in zip(MORE, rounds, strict=True):
            own, entries = entries[: wanted[grouping]], entries[wanted[grouping] :]
            placed += [((place + 0.5) / len(own), entry) for place, entry in enumerate(own)]
    for placed in rounds:
        placed.sort(key=lambda item: item[0])
    return [
        [(entry.problem, entry.origin, entry.layer, turn) for turn, (_, entry) in enumerate(placed)]
        for placed in rounds
    ]


def rows() -> Iterator[Row]:
    """The cases in order."""
    of = {variant: problems(variant) for variant in VARIANTS}
    yield from _round(of, other=0)
    further = {variant: more(variant) for variant in VARIANTS}
    for place in range(len(MORE)):
        yield from _round({variant: (found[place], []) for variant, found in further.items()}, other=0)
    yield from _round(of, other=1)


def _round(of: Mapping[str, tuple[Sequence[Given], Sequence[Given]]], other: int) -> Iterator[Row]:
    """Training and validation problems of all directions in turn; ``other`` 1 takes the other data type."""
    queues = [
        (_typed(train, other, "train"), _typed(validation, other, "validation")) for train, validation in of.values()
    ]
    while any(train or validation for train, validation in queues):
        for train, validation in queues:
            taken = train[:TRAINING_TO_VALIDATION] + validation[:1]
            del train[:TRAINING_TO_VALIDATION], validation[:1]
            yield from taken


def _typed(given: Sequence[Given], other: int, split: str) -> list[Row]:
    """Rows of one split, each in the data type of its turn."""
    made = []
    for problem, origin, layer, turn in given:
        dims = {name: getattr(problem, name) for name in DIMS}
        typed = Problem.from_dims(problem.variant, DTYPES[(turn + other) % 2], **dims)
        made.append((typed.key, split, origin, layer, *astuple(typed)))
    return made


def main() -> None:
    """Write the list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows())
    args.output.write_bytes(lzma.compress(buffer.getvalue().encode(), preset=9))


if __name__ == "__main__":
    main()
