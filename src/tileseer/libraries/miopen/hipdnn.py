"""``tileseer export hipdnn``: rules by which hipDNN chooses an engine for a convolution (``HIPDNN_HEUR_CONFIG_PATH``).

The form is version 2 of hipDNN's engine overrides, as its writer and its reader have it (ROCm/rocm-libraries,
projects/hipdnn: ``AutotuneFileWriter.hpp``, ``EngineOverrideConfig.hpp``, ``AutotuneConfigNames.hpp``): an operation,
the two tensors that it reads with sizes and strides in the order N C D H W, -1 for any, and an engine. The first rule
that fits counts. A rule does not name the data type, padding, stride and dilation: where these decide about the engine,
there is none. What is written here was never read by hipDNN on a GPU.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tileseer.cli import options
from tileseer.core.atomic import write_text
from tileseer.core.documents import read_json
from tileseer.core.errors import UserError, shown
from tileseer.core.reading import LARGEST_TABLE, no_file, read_utf8
from tileseer.facts.hardware import target
from tileseer.learn import evidence, model_files
from tileseer.learn.evidence import NEAR_PROBLEMS
from tileseer.libraries.problem_lists import read_problem_lists
from tileseer.libraries.registry import installed, library_of_arch
from tileseer.problems.operation import Operation
from tileseer.problems.problem import LAYOUTS, Problem
from tileseer.serve.selector import Selector

VARIABLE = "HIPDNN_HEUR_CONFIG_PATH"
VERSION = 2
"""Of the form, in which each tensor has its name."""
OPERATIONS = {
    "forward": ("conv_fprop", ("x_tensor_uid", "w_tensor_uid")),
    "bwd_data": ("conv_dgrad", ("dy_tensor_uid", "w_tensor_uid")),
    "bwd_weight": ("conv_wgrad", ("x_tensor_uid", "dy_tensor_uid")),
}
"""hipDNN's name of a direction, and the tensors that it reads, in hipDNN's order."""
ANY = -1
BATCHES = tuple(2**power for power in range(9))
"""At which a problem has the same engine, if its rule is for any batch size."""
OUTSIDE = "outside of what was measured: without a rule hipDNN decides"
NO_ENGINE = "no engine of the list runs kernels of {}; write its name behind the engine that does"
UNDECIDED = (
    "problems that a rule cannot tell apart (data type, padding, stride, dilation) have several engines, or none"
)
PREDICTED = "predicted, not timed"


class Engine(NamedTuple):
    """An engine of the user's machine."""

    name: str
    library: str
    """Whose kernels it runs; empty where nobody knows."""


class Decision(NamedTuple):
    """The engine for a problem."""

    engine: str
    time_ms: float
    """Expected."""


class Tensor(NamedTuple):
    """What a rule says of a tensor."""

    name: str
    dim: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass
class Rules:
    """What is written, and why problems have no rule."""

    asked: dict[tuple[str, tuple[Tensor, ...]], list[Decision | None]] = field(default_factory=dict)
    """What was decided for the problems of the same operation and tensors."""
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, problem: Problem, decision: Decision | None, any_batch: bool) -> None:
        """Add what was decided for a problem."""
        key = OPERATIONS[problem.variant][0], tensors_of(problem, any_batch)
        self.asked.setdefault(key, []).append(decision)

    @property
    def decided(self) -> dict[tuple[str, tuple[Tensor, ...]], Decision]:
        """By operation and tensors, where one engine is right for all problems of the same."""
        first = {key: own[0] for key, own in self.asked.items() if len({one and one.engine for one in own}) == 1}
        return {key: own for key, own in first.items() if own is not None}

    def text(self) -> str:
        """Return the file."""
        rules: list[dict[str, Any]] = [
            {
                "op": op,
                "engine_name": decision.engine,
                "tensors": [{"tensor_id": one.name, "dim": one.dim, "stride": one.stride} for one in tensors],
                "autotune_metadata": {
                    "rank": 0, "min_time_ms": _digits(decision.time_ms), "avg_time_ms": _digits(decision.time_ms),
                    "stddev_ms": 0.0, "iterations_run": 0, "mode": "standard", "supports_exhaustive": False,
                    "ran_exhaustive": False, "exhaustive_not_run_reason": PREDICTED,
                },
            }
            for (op, tensors), decision in self.decided.items()
        ]  # fmt: skip
        # Rules for any batch size behind those for one: the first that fits counts.
        rules.sort(key=lambda rule: any(ANY in one["dim"] for one in rule["tensors"]))
        return json.dumps({"version": VERSION, "engine_overrides": rules}, indent=1) + "\n"


def tensors_of(problem: Problem, any_batch: bool = False) -> tuple[Tensor, ...]:
    """Return the tensors that hipDNN reads for a problem, as a rule names them."""
    axes = slice(3 - problem.ndim, 3)
    batch = ANY if any_batch else problem.N
    image, taps, output = (own[axes] for own in (problem.dims[4:7], problem.dims[7:10], tuple(problem.output)))
    sizes: dict[str, tuple[int, ...]] = {
        "x_tensor_uid": (batch, problem.C, *image),
        "w_tensor_uid": (problem.K, problem.C // problem.G, *taps),
        "dy_tensor_uid": (batch, problem.K, *output),
    }
    last = problem.layout == LAYOUTS[1]
    return tuple(Tensor(name, sizes[name], strides(sizes[name], last)) for name in OPERATIONS[problem.variant][1])


def strides(sizes: Sequence[int], channels_last: bool) -> tuple[int, ...]:
    """Return the steps of a packed tensor of ``sizes``, N C D H W, along each of its axes, in elements."""
    order = [0, *range(2, len(sizes)), 1] if channels_last else [*range(len(sizes))]
    steps = [1] * len(sizes)
    for behind, axis in zip(order[:0:-1], order[-2::-1], strict=True):
        steps[axis] = steps[behind] * sizes[behind]
    return tuple(steps)


def read_engines(path: Path) -> list[Engine]:
    """Return the engines of a list: a name a line, or JSON, each with the library whose kernels it runs if need be.

    Without that word it is the library whose name is in the engine's. ``UserError`` for an empty list.
    """
    form = "write one a line, as your hipDNN lists them, such as MIOPEN_ENGINE"
    if not path.exists():
        raise UserError(f"--engines {path}: {no_file(path)}; it has the names of engines: {form}")
    text = read_utf8(path, LARGEST_TABLE)
    if text.lstrip().startswith(("[", "{")):
        content = read_json(path)
        rows = content.get("engines", content) if isinstance(content, dict) else content
        if not isinstance(rows, list) or not all(isinstance(row, str | dict) for row in rows):
            raise UserError(f"{path}: should be a list of names of engines, or of objects with name and library")
        words = [[row] if isinstance(row, str) else [str(row.get("name")), str(row.get("library", ""))] for row in rows]
    else:
        words = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not words:
        raise UserError(f"{path}: names no engine; {form}")
    names = [library.name for library in installed()]
    engines = []
    for name, *more in words:
        if not re.fullmatch(r"\w(?:[\w.:-]*\w)?", name):
            raise UserError(f"{path}: {shown(name)} names no engine; {form}")
        if any(name.startswith(library.prefix) for library in installed()):
            raise UserError(f"{path}: {shown(name)} is a kernel; list the engines that your hipDNN has")
        told = more[0] if more else ""
        if told and told not in names:
            raise UserError(f"{path}: engine {shown(name)}: {shown(told)} is no library; there are {', '.join(names)}")
        engines.append(Engine(name, told or next((one for one in names if one in name.lower()), "")))
    return engines


def decide(
    models: Sequence[Path], problems: Sequence[Problem], engines: Sequence[Engine], any_batch: bool = False
) -> Rules:
    """Return the rules for problems: of all models, the engine of the library whose kernels are expected fastest.

    ``UserError`` for models of several GPUs.
    """
    rules, of_library = Rules(), {one.library: one.name for one in reversed(engines) if one.library}
    indices = [(folder, model_files.read_index(folder)) for folder in models]
    if len({(target(index.arch), index.device) for _, index in indices}) > 1:
        devices = ", ".join(f"{folder} of {index.device}" for folder, index in indices)
        raise UserError(f"{devices}: rules are of one GPU; give models of the same one")
    known = [(folder, index, of_library.get(library_of_arch(index.arch).name)) for folder, index in indices]
    batches = {problem: at_batches(problem) if any_batch else [] for problem in problems}
    of_operation: dict[Operation, dict[Problem, None]] = {}
    for problem in (*problems, *chain.from_iterable(batches.values())):
        of_operation.setdefault(Operation(problem.variant, problem.dtype), {})[problem] = None
    decided: dict[Problem, Decision] = {}
    no_engine = NO_ENGINE.format(" or ".join(sorted({library_of_arch(index.arch).name for _, index in indices})))
    for operation, listed in of_operation.items():
        for folder, index, engine in known:
            if engine and str(operation) in index.operations:
                for problem, own in _expected(Selector.read(folder, str(operation)), engine, [*listed]):
                    decided[problem] = min(own, decided.get(problem, own), key=lambda one: one.time_ms)
    for problem in problems:
        choice, others = decided.get(problem), [decided.get(one) for one in batches[problem]]
        if choice is None:
            rules.left_out[OUTSIDE if any(engine for _, _, engine in known) else no_engine] += 1
        is_one = choice is not None and all(one is not None and one.engine == choice.engine for one in others)
        rules.add(problem, choice, bool(others) and is_one)
    lost = sum(len(rules.asked[key]) > 1 for key in rules.asked.keys() - rules.decided.keys())
    rules.left_out.update({UNDECIDED: lost} if lost else {})
    return rules


def at_batches(problem: Problem) -> list[Problem]:
    """Return the same layer at ``BATCHES``, as far as it is not too large."""
    found = list[Problem]()
    with suppress(UserError):
        found += (replace(problem, N=batch) for batch in BATCHES)
    return found


def _expected(selector: Selector, engine: str, problems: Sequence[Problem]) -> Iterator[tuple[Problem, Decision]]:
    """Yield what a library is expected to need for each problem of which something is known.

    By the median speed of the nearest measured problems, of one with the same sizes alone.
    """
    known = [problem for problem in problems if selector.knows(problem.ndim, problem.layout)]
    if not known:
        return
    table = selector.frame(np.concatenate([selector.dims_of(problem) for problem in known]))
    usable = selector.model.supported(table).any(axis=1) & (selector.expected(known).classes != evidence.OUTSIDE)
    nearest, away = selector.evidence.nearest(selector.evidence_columns(known), NEAR_PROBLEMS)
    flops_per_ms = selector.known["tflops"].to_numpy() * 1e9
    for problem, is_usable, near, squares in zip(known, usable.tolist(), nearest, away, strict=True):
        rows = near[:1] if squares[0] == 0 else near[near >= 0]
        if is_usable and len(rows):
            yield problem, Decision(engine, float(problem.flop / np.median(flops_per_ms[rows])))


def _digits(milliseconds: float) -> float:
    return float(f"{milliseconds:.6g}")


SUMMARY = "rules by which hipDNN chooses an engine (never read by hipDNN on a GPU so far)"
EXAMPLES = (
    "tileseer export hipdnn results/models/gfx942_miopen --problems training.log --engines engines.txt \\\n"
    "      --output hipdnn.json",
)


def configure(own: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    own.add_argument(
        "models", nargs="+", type=Path, metavar="MODEL_DIR", help="directories with index.json, of one GPU"
    )
    own.add_argument("--problems", nargs="+", required=True, type=Path, metavar="FILE", help=options.problem_files())
    meaning = "engines that your hipDNN lists: a name a line or JSON, with the library whose kernels it runs if need be"
    own.add_argument("--engines", required=True, type=Path, metavar="FILE", help=meaning)
    own.add_argument("--output", required=True, type=Path, metavar="FILE", help="the file of rules")
    meaning = "one rule for all batch sizes of a layer where they have the same engine (1 to 256 were asked)"
    own.add_argument("--any-batch", action="store_true", help=meaning)
    options.add_layout(own)
    own.epilog = "hipDNN reads the file that HIPDNN_HEUR_CONFIG_PATH names. See docs/amd.md."


def run(args: argparse.Namespace) -> int:
    """Write the file and print how hipDNN finds it; return 1 if there is no rule."""
    engines = read_engines(args.engines)
    indices = list(map(model_files.read_index, args.models))
    operations = dict.fromkeys(name for index in indices for name in index.operations)
    layout = (args.layout or "").replace("D", "")
    listed = read_problem_lists(args.problems, list(map(Operation.parse, operations)), layout or LAYOUTS[0])
    layouts = [layout] if layout else LAYOUTS
    # Without a layout of its own a problem is for each of them.
    problems = [
        problem.with_layout(own)
        for problem in listed.problems
        for own in ([problem.layout] if problem.layout else layouts)
        if own in layouts
    ]
    rules = decide(args.models, problems, engines, args.any_batch)
    count = len(rules.decided)
    if count:
        write_text(args.output, rules.text())
    unknown = [one.name for one in engines if not one.library]
    kinds = sorted({index.device_kind for index in indices})
    by_engine = Counter(one.engine for one in rules.decided.values())
    content: Mapping[str, Any] = {
        "file": args.output, "problems": len(problems), "rules": count, "engines": dict(by_engine),
        "device_kinds": kinds,
        "unknown_engines": unknown, "left_out": dict(rules.left_out.most_common()),
        "refused": dict(listed.refused.most_common()), "notes": listed.notes,
    }  # fmt: skip
    return options.answer(args, content, _lines(args, content), not count)


def _lines(args: argparse.Namespace, content: Mapping[str, Any]) -> Iterable[str]:
    named = ", ".join(f"{name} {count:,}" for name, count in content["engines"].items())
    kinds = " and ".join(content["device_kinds"])
    written = f"{content['rules']:,} rules ({named})" if named else "not written, as there is no rule"
    yield f"{args.output}: {written} of {content['problems']:,} problems, by {kinds} times"
    if "simulated" in content["device_kinds"]:
        yield "warning: a formula made the simulated times; do not use these rules on a GPU"
    yield from (
        f"no model knows the kernels of {name}: write its library behind it" for name in content["unknown_engines"]
    )
    yield from (f"left out {count:,}: {reason}" for reason, count in content["left_out"].items())
    yield from (f"refused {count:,} lines: {reason}" for reason, count in content["refused"].items())
    yield from (f"note: {note}" for note in content["notes"])
    if not named:
        return
    yield f"to use it: export {VARIABLE}={args.output.absolute()}; to undo it: unset {VARIABLE}"
    yield "no rule was ever tried on a GPU: compare the speed with and without"
