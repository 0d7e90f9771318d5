"""The problems of one operation: what is trained on, and which runs of unseen networks it is judged on."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tileseer.core.errors import UserError
from tileseer.facts.inputs import ProblemsSettings
from tileseer.problems import design, layers, problem_sets
from tileseer.problems.layers import NetworkRun
from tileseer.problems.operation import Operation
from tileseer.problems.problem_table import ProblemEntry


@dataclass(frozen=True)
class ProblemSplit:
    """The problems of one operation; no layer library is in both ``training`` and ``validation``."""

    training: list[ProblemEntry]
    validation: list[ProblemEntry]
    runs: list[NetworkRun]
    """The runs whose layers are the validation problems."""
    held_out: int
    """Training problems that were left out, because validation has their layer family."""


def choose_problems(settings: ProblemsSettings, operation: Operation, ndims: Sequence[int]) -> ProblemSplit:
    """Read the tables that ``settings`` name and choose the problems of ``operation``.

    Layers that a user lists under ``training`` are trained on, and validation gives them up; everything that is drawn
    gives way to validation. A run of which a layer is trained on is no whole network any more, and not among the runs.
    ``UserError`` if validation has too few.
    """
    tables = {name: layers.read_layers(Path(name)) for name in dict.fromkeys((settings.networks, settings.validation))}
    for name, table in tables.items():
        layers.assert_splits(table, name)
    own, generated = _listed(settings, operation, ndims)
    taken = {entry.problem.layer_family for entry in own}
    runs = problem_sets.sample_runs(tables[settings.validation], settings, operation, ndims)
    judged = problem_sets.problems_of_layers([layer for run in runs for layer in run.layers], operation, ndims)
    validation = [e for e in judged if e.problem.layer_family not in taken]
    if len(validation) < settings.min_validation:
        raise UserError(
            f"{settings.validation}: {len(validation)} problems for {operation}, fewer than the "
            f"{settings.min_validation} that problems.validation_problems: {settings.validation_problems} needs; add "
            "layers, lower it, or set it to 0 for all"
        )
    kept = {entry.problem.key for entry in validation}
    train = [layer for layer in tables[settings.networks] if layer.split == "train"]
    filling = design.draw_design(train, operation, ndims, settings.design, settings.seed)
    some = problem_sets.sample_layers(train, operation, settings.training_layers, settings.seed)
    drawn = [ProblemEntry(problem, "design", "") for problem in filling]
    drawn += problem_sets.problems_of_layers(some, operation, ndims)
    training = {entry.problem.key: entry for entry in (*own, *generated, *drawn)}
    rest = problem_sets.hold_out(list(training.values()), validation)
    return ProblemSplit(
        rest,
        validation,
        [run for run in runs if all(layer.problem_for(operation).key in kept for layer in run.layers)],
        len(training) - len(rest),
    )


def checks(settings: ProblemsSettings) -> Iterator[Callable[[], object]]:
    """Yield the calls that read what the settings name; each raises a ``UserError`` where ``choose_problems`` would."""
    for name in dict.fromkeys((settings.networks, settings.validation)):
        yield partial(layers.check_layers, Path(name))
    yield from (partial(_check_listed, Path(name)) for name in settings.training)


def _check_listed(path: Path) -> None:
    if _is_table(path):
        layers.read_layers(path)
    else:
        problem_sets.check_generator(path)


def _is_table(path: Path) -> bool:
    """Return whether a file under ``problems.training`` is a table of layers; else it is a generator."""
    if path.suffix not in (".csv", ".yaml", ".yml"):
        raise UserError(f"problems.training: {path} is neither a .yaml generator nor a .csv table of layers")
    return path.suffix == ".csv"


def _listed(
    settings: ProblemsSettings, operation: Operation, ndims: Sequence[int]
) -> tuple[list[ProblemEntry], list[ProblemEntry]]:
    """Return the problems of the files under ``problems.training``: of tables of layers, and of generators."""
    own: list[ProblemEntry] = []
    generated: list[ProblemEntry] = []
    for name in settings.training:
        path = Path(name)
        if _is_table(path):
            own += problem_sets.problems_of_layers(layers.read_layers(path), operation, ndims)
        else:
            generated += problem_sets.generate_problems(path, operation, tuple(ndims), settings.seed)
    return own, generated
