"""The problems of one operation: what is trained on, and which runs of unseen networks it is judged on.

They come from generator files, from tables of the layers of networks, and from the space that these span (``design``).

A generator file lists sections. A section crosses ``choices``: each key is a dimension or several joined by
commas (chosen together), each value the list to choose from. Derived names say what a product of lists cannot:

* ``C/G`` and ``K/G``: channels a group; C and K follow. ``C`` and ``K`` may be given instead.
* ``pad: same`` pads every axis by dilation * (filter - 1) / 2, rounded down.
* ``depthwise: true`` sets G = C = K.

``count`` draws that many problems of the product, without repetition, from a generator seeded by the section's
name: changing one section leaves the others as they are.
"""

import hashlib
import itertools
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field

from tileseer.core.errors import UserError
from tileseer.core.strict_tables import StrictModel, read_yaml_table
from tileseer.facts.inputs import ProblemsSettings
from tileseer.problems import design
from tileseer.problems.layers import Layer, NetworkRun, read_layers, read_split_layers, runs_of
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS, INT32_MAX, LEAST, Problem, drawable_problem, meant
from tileseer.problems.problem_table import ProblemEntry

_DERIVED = ("C/G", "K/G")
T = TypeVar("T")


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
    tables = {name: read_split_layers(Path(name)) for name in dict.fromkeys((settings.networks, settings.validation))}
    own: list[ProblemEntry] = []
    generated: list[ProblemEntry] = []
    for path in map(Path, settings.training):
        (own if path.suffix == ".csv" else generated).extend(_of_file(path, operation, ndims, settings.seed))
    taken = {entry.problem.layer_family for entry in own}
    runs = sample_runs(tables[settings.validation], settings, operation, ndims)
    judged = problems_of_layers([layer for run in runs for layer in run.layers], operation, ndims)
    validation = [e for e in judged if e.problem.layer_family not in taken]
    if len(validation) < settings.min_validation:
        raise UserError(f"{settings.validation}: {_too_few(settings, operation, len(judged), len(validation))}")
    kept = {entry.problem.key for entry in validation}
    train = [layer for layer in tables[settings.networks] if layer.split == "train"]
    filling = design.draw_design(train, operation, ndims, settings.design, settings.seed)
    some = sample_layers(train, operation, settings.training_layers, settings.seed)
    drawn = [ProblemEntry(problem, "design", "") for problem in filling]
    drawn += problems_of_layers(some, operation, ndims)
    training = {entry.problem.key: entry for entry in (*own, *generated, *drawn)}
    rest = hold_out(list(training.values()), validation)
    if not rest:
        raise UserError(
            f"problems: nothing is left to train {operation} on; raise problems.design or problems.training_layers, or "
            f"name problems.training, with layers that are not in {settings.validation}"
        )
    return ProblemSplit(
        rest,
        validation,
        [run for run in runs if all(layer.problem_for(operation).key in kept for layer in run.layers)],
        len(training) - len(rest),
    )


def _too_few(settings: ProblemsSettings, operation: Operation, judged: int, left: int) -> str:
    """Say what brings more problems to validate on: ``judged`` in the table, ``left`` that are not trained on."""
    if not judged:
        return f"no whole run of its test split has problems of {operation} alone; add some, or leave the operation out"
    if not left:
        return f"all its {judged} problems for {operation} are in problems.training, which takes them; leave one out"
    return (
        f"{left} problems for {operation}, fewer than the {settings.min_validation} that problems.validation_problems: "
        f"{settings.validation_problems} needs; add layers, lower it, or set it to 0 for all"
    )


def checks(settings: ProblemsSettings) -> Iterator[Callable[[], object]]:
    """Yield the calls that read what the settings name; each raises a ``UserError`` where ``choose_problems`` would."""
    for name in dict.fromkeys((settings.networks, settings.validation)):
        yield partial(read_split_layers, Path(name))
    for name in settings.training:
        yield partial(_of_file, Path(name), Operation("forward", "bf16"), (2, 3), settings.seed)


def _of_file(path: Path, operation: Operation, ndims: Sequence[int], seed: int) -> list[ProblemEntry]:
    """Return the problems of a file under ``problems.training``: a table of layers, or a generator."""
    if path.suffix == ".csv":
        return problems_of_layers(read_layers(path), operation, ndims)
    if path.suffix not in (".yaml", ".yml"):
        raise UserError(f"problems.training: {path} is neither a .yaml generator nor a .csv table of layers")
    return generate_problems(path, operation, tuple(ndims), seed)


class GeneratorSection(StrictModel):
    """Problems of one kind."""

    name: str = Field(min_length=1)
    choices: dict[str, list[Any]]
    """Dimension, or dimensions joined by commas, to the values to choose from."""
    pad: str = Field("given", pattern="^(given|same)$")
    """``same``, or ``given`` (the pad fields of the choices, 0 where there are none)."""
    depthwise: bool = False
    """Set G = C = K."""
    count: int | None = Field(None, ge=1)
    """How many problems to draw; all of the product if not set."""


class Generator(StrictModel):
    """A generator file."""

    sections: list[GeneratorSection] = Field(min_length=1)


def generate_problems(path: Path, operation: Operation, ndims: tuple[int, ...], seed: int) -> list[ProblemEntry]:
    """Return the problems of a generator file for one operation, in file order, without repetition."""
    generator = read_yaml_table(path, Generator)
    entries: dict[str, ProblemEntry] = {}
    for section in generator.sections:
        for problem in _draw(section, operation, seed, f"{path}: section {section.name!r}"):
            if problem.ndim in ndims:
                entries.setdefault(problem.key, ProblemEntry(problem, section.name, ""))
    return list(entries.values())


def _draw(section: GeneratorSection, operation: Operation, seed: int, where: str) -> Iterator[Problem]:
    axes = [_axis(key, values, where) for key, values in section.choices.items()]
    size = math.prod(len(axis) for axis in axes)
    numbers: Iterable[int] = range(size)
    if section.count is not None:
        if size > 10**7:
            raise UserError(f"{where}: the choices make {size} combinations; more than 10,000,000 cannot be drawn from")
        # Python's own generator: its sequence for a given seed is the same on every version and machine.
        stream = random.Random(hashlib.sha256(f"{seed}:{section.name}".encode()).hexdigest())
        numbers = stream.sample(range(size), size)
    # Lazily: of a large product few are looked at.
    possible = (_problem(_combination(axes, number), section, operation) for number in numbers)
    valid = (problem for problem in possible if problem is not None)
    drawn = list(itertools.islice(valid, section.count))
    if not drawn:
        raise UserError(
            f"{where}: none of its combinations ({size}) is a convolution that can be measured; correct choices or pad"
        )
    if section.count is not None and len(drawn) < section.count:
        raise UserError(f"{where}: count is {section.count}, but only {len(drawn)} combinations are valid")
    yield from drawn


def _combination(axes: list[list[dict[str, int]]], number: int) -> dict[str, int]:
    """Return the dimensions of one combination of the product; the first axis runs fastest."""
    dims: dict[str, int] = {}
    for axis in axes:
        number, index = divmod(number, len(axis))
        dims |= axis[index]
    return dims


def _axis(key: str, values: list[Any], where: str) -> list[dict[str, int]]:
    """Return what each choice of one key sets."""
    names = [name.strip() for name in key.split(",")]
    if unknown := [name for name in names if name not in (*DIMS, *_DERIVED)]:
        way = meant(unknown[0], 0.6, DIMS) or f"; use {', '.join((*DIMS, *_DERIVED))}"
        raise UserError(f"{where}: unknown dimension {unknown[0]!r}{way}")
    if not values:
        raise UserError(f"{where}: {key}: the list of values is empty")
    axis = []
    for value in values:
        numbers = value if isinstance(value, list) else [value]
        if len(numbers) != len(names) or not all(type(n) is int and 0 <= n <= INT32_MAX for n in numbers):
            raise UserError(f"{where}: {key}: {value!r} must be {len(names)} whole number(s) from 0 to {INT32_MAX}")
        axis.append(dict(zip(names, numbers, strict=True)))
    return axis


def _problem(dims: dict[str, int], section: GeneratorSection, operation: Operation) -> Problem | None:
    """Return the problem, or None where G does not divide, the filter does not fit, or the problem is too large."""
    full = LEAST | {name: size for name, size in dims.items() if name in DIMS}
    if section.depthwise:
        full["G"] = full["K"] = full["C"]
    full |= {name[0]: dims[name] * full["G"] for name in _DERIVED if name in dims}
    if section.pad == "same":
        for extent, axis in zip("ZYX", "dhw", strict=True):
            full[f"pad_{axis}"] = full[f"dilation_{axis}"] * (full[extent] - 1) // 2
    return drawable_problem(operation, full)


def problems_of_layers(layers: Iterable[Layer], operation: Operation, ndims: Sequence[int]) -> list[ProblemEntry]:
    """Return the distinct problems of layers whose run needs the direction, with the first network that has each."""
    entries: dict[str, ProblemEntry] = {}
    for layer in layers:
        if operation.variant in layer.directions:
            problem = layer.problem_for(operation)
            if problem.ndim in ndims:
                entries.setdefault(problem.key, ProblemEntry(problem, layer.network, layer.layer))
    return list(entries.values())


def sample_layers(layers: Iterable[Layer], operation: Operation, size: int, seed: int) -> list[Layer]:
    """Return about ``size`` layers, dealt in turn over their network families, no two of one layer family."""
    usable = [layer for layer in layers if operation.variant in layer.directions]
    usable.sort(key=lambda e: _order(seed, "layer", e.network, e.run, *map(str, e.dims)))
    chosen: dict[tuple[int, ...], Layer] = {}
    for layer in _in_turn([(layer.network_family or layer.network, layer) for layer in usable], seed):
        if len(chosen) >= size:
            break
        chosen.setdefault(layer.layer_family, layer)
    return list(chosen.values())


def sample_runs(
    layers: Sequence[Layer], settings: ProblemsSettings, operation: Operation, ndims: Sequence[int]
) -> list[NetworkRun]:
    """Return the runs of networks of the test split, in turn from each network family, up to ``validation_problems``.

    Only whole runs are taken, those whose layers are all in the split: so the cost of a whole network is known.
    A run that would go beyond that many distinct problems, or take more than a tenth, is passed over. 0 takes all.
    """
    size, seed = settings.validation_problems, settings.seed
    elsewhere = {(layer.network, layer.run) for layer in layers if layer.split != "test"}
    whole = [
        run
        for run in runs_of(layers, operation.variant)
        if (run.network, run.run) not in elsewhere and all(layer.ndim in ndims for layer in run.layers)
    ]
    whole.sort(key=lambda run: _order(seed, "run", run.network, run.run))
    chosen: list[NetworkRun] = []
    dims: set[tuple[int, ...]] = set()
    for run in _in_turn([(run.layers[0].network_family or run.network, run) for run in whole], seed):
        more = {layer.dims for layer in run.layers} - dims
        if not size or (len(more) <= max(size // 10, 1) and len(dims) + len(more) <= size):
            chosen.append(run)
            dims |= more
    return chosen


def _order(seed: int, *words: str) -> str:
    """Return the key that shuffles by content, so that one more network does not reorder the others."""
    return hashlib.sha256(":".join((str(seed), *words)).encode()).hexdigest()


def _in_turn(items: Iterable[tuple[str, T]], seed: int) -> Iterator[T]:
    """Yield the first item of each network family, then the second of each, and so on; families in a drawn order."""
    queues: dict[str, list[T]] = defaultdict(list)
    for family, item in items:
        queues[family].append(item)
    ordered = [queues[family] for family in sorted(queues, key=lambda family: _order(seed, family))]
    for place in range(max(map(len, ordered), default=0)):
        yield from (queue[place] for queue in ordered if place < len(queue))


def hold_out(training: list[ProblemEntry], validation: list[ProblemEntry]) -> list[ProblemEntry]:
    """Return the training problems whose layer family does not occur in validation.

    The same layer at another batch size is no unseen problem, so whole families are held out.
    """
    families = {entry.problem.layer_family for entry in validation}
    return [entry for entry in training if entry.problem.layer_family not in families]
