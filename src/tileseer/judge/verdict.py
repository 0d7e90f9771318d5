"""Whether what ships is good enough to use, what says no, and what to do next.

Every limit has to hold. Means and 10th percentiles are compared with what a model can reach at best
(``Figures.possible``): on noisy times, less than 100 %.
"""

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from tileseer.facts.hardware import target
from tileseer.judge.evaluation import Evaluation
from tileseer.libraries.registry import library_of_arch, vendor_arch
from tileseer.problems.problem import EXAMPLE
from tileseer.problems.problem_csv import without_defaults

MEAN_POINTS = 2.0
"""The mean efficiency may be so far below the best possible one."""
P10_POINTS = 5.0
"""The same of the 10th percentile."""
LEAST_OF_A_NETWORK = 90.0
"""The least efficiency of a whole network, percent."""
LEAST_OF_A_LAYER = 50.0
"""The least efficiency of a layer, percent."""
COVERED_TIME = 95.0
"""The least share of the time in layers that a candidate can run, percent."""
LIBRARY_SPEED = 0.95
"""The least speed beside another library."""
GOOD = {
    "simulated": "as good as the simulation can tell",
    "recorded": "good, on recorded times",
    "measured": "good",
}
"""The words for a model that no limit refuses, by where its times come from."""

MEANING_OF_KIND = {
    "simulated": "Simulated: a formula made these times, no GPU. Measure your GPU before you rely on the picks.",
    "recorded": "Recorded: the times were measured before on {device} and replayed here.",
    "measured": "Measured on {device}.",
}
"""What times of each kind are worth."""


class Verdict(NamedTuple):
    """The verdict on what ships."""

    word: str
    level: Literal["good", "limited", "bad"]
    """``limited``: useful, but not shown to be good on a GPU, or with room left."""
    reasons: list[str]
    """What is not good enough."""


def faults(evaluation: Evaluation) -> Iterator[str]:
    """Yield what is not good enough; nothing if all limits hold."""
    picked, possible, without = evaluation.efficiency, evaluation.possible, evaluation.best_baseline.efficiency
    for name, value, best, limit in (
        ("mean", picked.mean, possible.mean, MEAN_POINTS),
        ("10th percentile", picked.p10, possible.p10, P10_POINTS),
    ):
        if value < best - limit:
            yield f"{name} {value:.1f} %, {best:.1f} % is possible (limit: {limit:g} points)"
    if picked.mean <= without.mean:
        yield f"the best fixed choice has mean {without.mean:.1f} %, the model {picked.mean:.1f} %"
    if (network := evaluation.worst_network) and network.by_time < LEAST_OF_A_NETWORK:
        yield f"{network.network} ({network.run}) runs at {network.by_time:.1f} % (limit: {LEAST_OF_A_NETWORK:g} %)"
    if picked.min < LEAST_OF_A_LAYER:
        layer = evaluation.worst_layer
        name = f"{layer.network} {layer.layer}".strip() or without_defaults(layer.problem)
        yield f"the pick of {name} has {picked.min:.1f} % (limit: {LEAST_OF_A_LAYER:g} %)"
    if evaluation.covered_time < COVERED_TIME:
        is_offered = library_of_arch(evaluation.arch).offered
        why = "stay with the library, whose own choice was wrong" if is_offered else "have no candidate"
        yield (
            f"{evaluation.without_candidate} of {evaluation.without_candidate + evaluation.layers} layers, "
            f"{100 - evaluation.covered_time:.0f} % of the time, {why} (limit: {100 - COVERED_TIME:g} %)"
        )
    for other in evaluation.libraries:
        if other.speed < LIBRARY_SPEED:
            yield f"{other.library} is faster: the picks have {other.speed:.2f} of its speed on {other.layers} layers"


def verdict_of(evaluation: Evaluation) -> Verdict:
    """Return the word, level and reasons."""
    reasons = list(faults(evaluation))
    if not reasons:
        return Verdict(GOOD[evaluation.device_kind], "limited" if evaluation.device_kind == "simulated" else "good", [])
    covered = evaluation.covered_time >= COVERED_TIME
    if covered and evaluation.libraries and all(other.speed >= 1 for other in evaluation.libraries):
        return Verdict("faster than the library's own choice, with room left", "limited", reasons)
    where = " in the simulation" if evaluation.device_kind == "simulated" else ""
    return Verdict(f"not good enough{where}", "bad", reasons)


def verdict_words(evaluation: Evaluation) -> str:
    """Say the verdict in words, which tell what it is worth."""
    made = verdict_of(evaluation)
    return f"{made.word}: {'; '.join(made.reasons)}" if made.reasons else made.word


def speed_of(evaluation: Evaluation) -> str:
    """Return the speed of the picks relative to what runs today, in words."""
    return ", ".join(f"{speed:.3f} x {name}" for name, speed in evaluation.speeds.items())


def meaning_of_times(kind: str, device: str) -> str:
    """Return what the times of a device of some kind are worth, in a sentence."""
    return MEANING_OF_KIND[kind].format(device=device)


def measuring_command(arch: str) -> str | None:
    """Return the command that measures a GPU of an arch's target; None where no GPU is measured for its kernels."""
    library = library_of_arch(arch)
    if library.measured_with is None:
        return None
    models = arch if library.offered else target(arch)
    return f"tileseer run results/models/{models} --configfile {library.measured_with[1]}"


def next_step(arch: str, evaluations: Iterable[Evaluation], call: str) -> tuple[str, str]:
    """Return what to do with the models of an arch, and the command; ``call``: the one that made them."""
    found = list(evaluations)
    kind, bad = found[0].device_kind, any(any(faults(one)) for one in found)
    models, measure = f"results/models/{arch}", measuring_command(arch)
    slower = any(other.speed < LIBRARY_SPEED for one in found for other in one.libraries)
    if slower and (library := vendor_arch(arch)):
        title = library_of_arch(library).title
        return f"make models of the plans of {title}, which is faster", f"tileseer run --arch {library}"
    if measure and (kind == "simulated" or (bad and kind == "recorded")):
        return "measure your GPU; the report of that run replaces this one", measure
    if bad and kind == "measured":
        return "change what would improve the models, and run again; only new measurements are made", call
    if bad:
        program = library_of_arch(arch).program
        tune = f"tileseer tune {models} --problems FILE{f' --driver {program}' if program else ''}"
        return "time the first picks of your layers once, and keep the fastest", tune
    return "rank the kernels of a layer of yours", f"tileseer select {models} --problem {EXAMPLE}"
