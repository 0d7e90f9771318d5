"""Whether what ships is good enough to use, what says no, and what to do next.

Every limit has to hold. Means, 10th percentiles and the sum of the times are compared with what a model can reach at
best (``Figures.possible``): on noisy times, less than 100 %. Where nobody knows the noise, they are compared with the
fastest candidates themselves.
"""

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from tileseer.data.recordings import vendor_models
from tileseer.facts.hardware import target
from tileseer.judge.evaluation import Evaluation
from tileseer.judge.figures import LONGEST
from tileseer.libraries.registry import library_of_arch
from tileseer.problems.problem import EXAMPLE

MEAN_POINTS = 2.0
"""The mean efficiency may be so far below the best possible one."""
P10_POINTS = 5.0
"""The same of the 10th percentile."""
MOST_TIME = 1.03
"""The time of all picks over that of the fastest may be so many times the best possible one."""
MOST_OF_A_LONG_LAYER = 1.3
"""The most time over that of the fastest of a layer that is one of the longest (``figures.longest_layers``)."""
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
        ("mean", picked.mean, possible.mean if possible else None, MEAN_POINTS),
        ("10th percentile", picked.p10, possible.p10 if possible else None, P10_POINTS),
    ):
        if value < (100.0 if best is None else best) - limit:
            yield f"{name} {value:.1f} %, {_possible(best, '.1f', ' %')} (limit: {limit:g} points)"
    taken, least = evaluation.sum_over_best, evaluation.sum_possible
    if taken > MOST_TIME * (least or 1.0):
        yield (
            f"all picks take {taken:.3f} times as long as the fastest, {_possible(least, '.3f')} "
            f"(limit: {MOST_TIME:g} times that)"
        )
    if evaluation.worst_of_longest > MOST_OF_A_LONG_LAYER:
        yield (
            f"the pick of {evaluation.worst_long_layer.name}, one of the {LONGEST} layers that take most time, takes "
            f"{evaluation.worst_of_longest:.2f} times as long as the fastest (limit: {MOST_OF_A_LONG_LAYER:g})"
        )
    if picked.mean <= without.mean:
        yield f"the best fixed choice has mean {without.mean:.1f} %, the model {picked.mean:.1f} %"
    if (network := evaluation.worst_network) and network.by_time < LEAST_OF_A_NETWORK:
        yield f"{network.network} ({network.run}) runs at {network.by_time:.1f} % (limit: {LEAST_OF_A_NETWORK:g} %)"
    if picked.min < LEAST_OF_A_LAYER:
        yield f"the pick of {evaluation.worst_layer.name} has {picked.min:.1f} % (limit: {LEAST_OF_A_LAYER:g} %)"
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


def _possible(best: float | None, form: str, unit: str = "") -> str:
    """Return what is possible in words; None: nobody knows the noise of the times."""
    return "what is possible is not known" if best is None else f"{best:{form}}{unit} is possible"


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


class Use(NamedTuple):
    """Whether to use what ships instead of what runs today, however far both are from what is possible."""

    word: Literal["yes", "mostly", "no"]
    level: Literal["good", "limited", "bad"]
    reason: str


def in_words(name: str) -> str:
    """Return the name of what runs today (``Evaluation.speeds``) for a sentence."""
    return f"the {name}" if name.startswith("best ") else name


def worth_using(evaluation: Evaluation) -> Use:
    """Return whether the picks are faster than what runs today, on most layers and in the sum."""
    speeds, gain = evaluation.speeds, evaluation.sum_without_model / evaluation.sum_over_best
    slowest = min(speeds, key=lambda name: speeds[name])
    reason = f"{speeds[slowest]:.2f} x {in_words(slowest)}"
    if evaluation.covered_time < COVERED_TIME:
        reason += f"; {100 - evaluation.covered_time:.0f} % of the time is left to others"
    if speeds[slowest] < 1 and gain < 1:
        return Use("no", "bad", reason)
    whole = speeds[slowest] >= 1 and gain >= 1 and evaluation.covered_time >= COVERED_TIME
    return Use("yes", "good", reason) if whole else Use("mostly", "limited", reason)


def verdict_words(evaluation: Evaluation) -> str:
    """Say the verdict in words, which tell what it is worth."""
    made = verdict_of(evaluation)
    return f"{made.word}: {'; '.join(made.reasons)}" if made.reasons else made.word


def meaning_of_times(kind: str, device: str) -> str:
    """Return what the times of a device of some kind are worth, in a sentence."""
    return MEANING_OF_KIND[kind].format(device=device)


def next_step(arch: str, evaluations: Iterable[Evaluation], call: str, published: str = "") -> tuple[str, str]:
    """Return what to do with the models of an arch, and the command.

    ``call``: the one that made them; ``published``: the name of their folder, if it is another than that of the arch.
    """
    found, name = list(evaluations), published or arch
    kind, bad = found[0].device_kind, any(any(faults(one)) for one in found)
    models, own = f"results/models/{name}", library_of_arch(arch)
    slower = any(other.speed < LIBRARY_SPEED for one in found for other in one.libraries)
    if slower and (library := vendor_models(arch)):
        title = library_of_arch(library).title
        return f"make models of the plans of {title}, which is faster", f"tileseer run --arch {library}"
    if own.measured_with and (kind == "simulated" or (bad and kind == "recorded")):
        measured = arch if own.offered else target(arch)
        replaced = "; the report of that run replaces this one" if measured == name else ""
        command = f"tileseer run results/models/{measured} --configfile {own.measured_with[1]}"
        return f"measure your GPU{replaced}", command
    if bad and kind == "measured":
        return "change what would improve the models, and run again; only new measurements are made", call
    if bad:
        tune = f"tileseer tune {models} --problems FILE{f' --driver {own.program}' if own.program else ''}"
        return "time the first picks of your layers once, and keep the fastest", tune
    return "rank the kernels of a layer of yours", f"tileseer select {models} --problem {EXAMPLE}"
