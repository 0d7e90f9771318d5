"""Write the list of cases: which convolutions, in which order, so that a run cut at any time leaves a balanced set.

The problems are those that the problems stage would choose of config/problems for training (the design and layers of
the train split) and for validation (whole runs of networks of the test split), less what is too large to be measured
often. The list goes round the directions, three training problems to one of validation. A first round has each problem
in one of the two data types, in turn; a second one has the other. The layers of a run keep to one data type.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import lzma
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path

from tileseer.conv import layers
from tileseer.conv.operation import VARIANTS, Operation
from tileseer.conv.problem import DIMS, FIELDS, Problem
from tileseer.problems import training_set
from tileseer.settings.inputs import ProblemsSettings

DTYPES = ("bf16", "fp16")
SETTINGS = ProblemsSettings(design=560, training_layers=450, validation_problems=450)
MOST_GFLOP = 400.0
MOST_ELEMENTS = 1 << 28
TRAINING_TO_VALIDATION = 3
COLUMNS = ("problem_key", "split", "network", "layer", *FIELDS)
Row = tuple[object, ...]


def small(problem: Problem) -> bool:
    """Whether a problem can be measured with all of its plans in a few seconds."""
    return problem.flop <= MOST_GFLOP * 1e9 and problem.largest_tensor <= MOST_ELEMENTS


def problems(variant: str) -> tuple[list[tuple[Problem, str, str, int]], list[tuple[Problem, str, str, int]]]:
    """Training and validation problems of a direction in order, with origin, layer and the turn of their data type."""
    operation = Operation(variant, "bf16")
    chosen = training_set.enough(SETTINGS, operation, (2, 3))
    training = [entry for entry in chosen.training if small(entry.problem)]
    training.sort(key=lambda entry: hashlib.sha256(f"order {entry.problem.key}".encode()).hexdigest())
    train = [(entry.problem, entry.origin, entry.layer, place) for place, entry in enumerate(training)]
    validation: dict[str, tuple[Problem, str, str, int]] = {}
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


def rows() -> Iterator[Row]:
    """The cases in order."""
    of = {variant: problems(variant) for variant in VARIANTS}
    for second in (0, 1):
        queues = {
            variant: [
                _typed(given, second, split) for given, split in zip(of[variant], ("train", "validation"), strict=True)
            ]
            for variant in VARIANTS
        }
        while any(train or validation for train, validation in queues.values()):
            for train, validation in queues.values():
                taken = train[:TRAINING_TO_VALIDATION] + validation[:1]
                del train[:TRAINING_TO_VALIDATION], validation[:1]
                yield from taken


def _typed(given: Sequence[tuple[Problem, str, str, int]], second: int, split: str) -> list[Row]:
    """Rows of one split, each in the data type of its turn."""
    made = []
    for problem, origin, layer, turn in given:
        dims = {name: getattr(problem, name) for name in DIMS}
        typed = Problem.from_dims(problem.variant, DTYPES[(turn + second) % 2], **dims)
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
