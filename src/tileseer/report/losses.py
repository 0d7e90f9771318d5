"""Where the model loses, and what would improve it."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from tileseer.libraries.registry import library_of_arch, vendor_arch
from tileseer.problems.problem_csv import without_defaults
from tileseer.report.measured import records, short
from tileseer.report.results import OperationResult, Results
from tileseer.report.tables import Row, each_operation, together
from tileseer.serve.evaluation import EvidencePart, LayerEvaluation
from tileseer.serve.layer_kinds import KindPart
from tileseer.serve.verdict import faults

PARTS_OF_A_KIND = 3
"""Parts of each kind."""
LOUD = 1.25
"""A part is worth more training problems if its share of the loss is so many times its share of the problems."""
NOISY = 99.0
"""Efficiency, percent, that a selector without error misses where the times are too noisy to tell candidates apart."""
ADD_KERNELS = "add kernels (configs.rule_set)"
MORE = "add training problems (problems.training_layers, problems.design)"
RECORD = "measure more layers of these kinds"
WORTH_TIMING = 0.5
"""Points of efficiency that timing two picks has to gain."""


@partial(together, "All networks, the worst first; time of the fastest candidates over time of the picks")
def networks(results: Results) -> Iterable[Row]:
    """Yield the whole runs of networks with the picks that ship."""
    shipped = [result.evaluation for result in results.operations]
    runs = [(network, one.operation) for one in shipped for network in one.networks]
    for network, operation in sorted(runs, key=lambda pair: pair[0].efficiency):
        yield {
            "network": network.network, "operation": operation, "run": network.run,
            "efficiency, %": network.efficiency, "layers": network.layers,
            "layers without a candidate": network.without_candidate, "picks that failed": network.failed,
        }  # fmt: skip


def _parts(result: OperationResult) -> Iterator[tuple[str, EvidencePart | KindPart, float]]:
    """Yield each part of the layers, and its share of the loss relative to the possible mean; the greatest first."""
    shipped = result.evaluation
    kinds: tuple[Mapping[str, EvidencePart | KindPart], ...] = (
        {f"kind of layer: {name}": part for name, part in shipped.by_kind.items()},
        {f"evidence: {name}": part for name, part in shipped.by_evidence.items()},
    )
    for parts in kinds:
        lost = {name: max(0.0, part.possible.mean - part.efficiency.mean) * part.layers for name, part in parts.items()}
        total = sum(lost.values()) or 1.0
        for name in sorted(lost, key=lambda name: (-lost[name], name))[:PARTS_OF_A_KIND]:
            yield name, parts[name], 100 * lost[name] / total


@partial(each_operation, "Loss against the fastest candidate, by kind of layer and by evidence")
def kinds(result: OperationResult) -> Iterable[Row]:
    """Yield all kinds of layers, those that cost the most time first, then the classes of evidence.

    The three kinds that lose most say where.
    """
    parts = result.evaluation.by_kind
    lost = {name: (100 - part.efficiency.mean) * part.layers for name, part in parts.items()}
    explained = sorted(lost, key=lambda name: (-lost[name], name))[:PARTS_OF_A_KIND]
    for name, part in sorted(parts.items(), key=lambda one: (-one[1].share_of_time, one[0])):
        reason = why(result, part) if name in explained else ""
        yield _losses(name, part, 100 - part.best_of_2.mean, part.share_of_time, reason)
    for name, evidence in result.evaluation.by_evidence.items():
        yield _losses(f"evidence: {name}", evidence)


def _losses(
    name: str, part: EvidencePart | KindPart, of_2: float | str = "", of_the_time: float | str = "", reason: str = ""
) -> Row:
    return {
        "layers of a kind": name, "layers": part.layers, "loss of the pick, %": 100 - part.efficiency.mean,
        "P10, %": part.efficiency.p10, "least possible loss without timing, %": 100 - part.possible.mean,
        "loss of the fastest of 2, timed, %": of_2, "share of the time, %": of_the_time, "why": reason,
    }  # fmt: skip


def why(result: OperationResult, part: KindPart) -> str:
    """Return at which choice the picks of a kind lose most, as a sentence; empty where they lose nothing."""
    worst = part.worst_choice
    if worst is None:
        return ""
    labels = {row.candidate: row for row in records(result.measured.candidates)}
    picked, best = (short(labels[name]) if name in labels else name for name in (worst.pick, worst.best))
    return (
        f"{worst.share:.0f} % of the loss are {worst.layers} layers on which {best} is faster than {picked or 'none'}, "
        f"by {worst.loss:.0f} % of the time."
    )


@partial(together, "What would improve the models")
def improvements(results: Results) -> Iterable[Row]:
    """Yield the advice for each model, that with the lowest mean first."""
    for result in sorted(results.operations, key=lambda one: one.evaluation.first.mean):
        for what, why in advice(result).items():
            yield {"operation": result.evaluation.operation, "change": what, "reason": why}


def advice(result: OperationResult) -> dict[str, str]:
    """Return what would improve a model, as far as its figures show, and why; something if a limit is missed."""
    shipped = result.evaluation
    reasons: dict[str, str] = {}
    offered = library_of_arch(shipped.arch).offered
    heavy: list[str] = []
    for name, part, share in _parts(result):
        of_layers = 100 * part.layers / shipped.layers
        words = f"{of_layers:.0f} % of the layers, {share:.0f} % of the loss ({name})"
        if (share > LOUD * of_layers and share >= 10) or (not heavy and any(faults(shipped))):
            heavy.append(words)
    if shipped.best_of_2.mean - shipped.first.mean >= WORTH_TIMING:
        picked, timed = shipped.first.mean, shipped.best_of_2.mean
        change = f"time two picks once ({'tileseer.torch' if offered else 'tileseer tune'})"
        reasons[change] = f"the faster one has mean {timed:.1f} %, the first pick alone {picked:.1f} %"
    if heavy:
        reasons[RECORD if shipped.device_kind == "recorded" else MORE] = "; ".join(heavy)
    if failed := sum(layer.efficiency == 0 for layer in shipped.worst):
        reasons["repair the kernels that fail"] = f"{failed} of the worst picks did not run"
    missing = shipped.without_candidate
    if missing and not offered:
        library = vendor_arch(shipped.arch)
        remedy = f"use cuDNN's plans for them (tileseer run --arch {library})" if library else ADD_KERNELS
        reasons[remedy] = f"{missing} layers have no candidate"
    floor = shipped.noise_floor.perfect_selector.mean
    if floor < NOISY:
        reasons["time more precisely (benchmark.timing: thorough)"] = f"a perfect selector reaches {floor:.1f} %"
    return reasons


@partial(each_operation, "The worst picks, and why")
def worst(result: OperationResult) -> Iterable[Row]:
    """Yield the picks that are farthest from the best."""
    labels = {row.candidate: row for row in records(result.measured.candidates)}
    for pick in result.evaluation.worst:
        names = {name: short(labels[name]) if name in labels else name for name in (pick.pick, pick.best)}
        yield {
            "layer": f"{pick.network}: {pick.layer}", "efficiency, %": pick.efficiency, "pick": names[pick.pick],
            "best": names[pick.best], "problem": without_defaults(pick.problem),
            "features that favoured the pick": _reasons(pick),
        }  # fmt: skip


def _reasons(worst: LayerEvaluation) -> str:
    reasons = (f"{s.feature} {s.contribution:+.2f} ({s.of_pick:g}, best {s.of_best:g})" for s in worst.reasons)
    return "; ".join(reasons) or "unknown"
