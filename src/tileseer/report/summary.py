"""The first screen: the verdict on what ships, what its times are worth, where it is worst, and what to do next."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from tileseer.kernels.libraries import library_of_arch
from tileseer.problems.problem import EXAMPLE
from tileseer.report.losses import advice
from tileseer.report.results import Results
from tileseer.report.tables import Badge, Row, together, without_defaults
from tileseer.serve.model_page import MEANING_OF_KIND, measuring_command
from tileseer.serve.verdict import faults, verdict_of

WORST_PLACES = 3
"""Worst networks, and worst layers."""
LIMITS = {
    "simulated": (
        "A formula computes the times, with reproducible deviation and noise. They serve to develop and test the "
        "workflow; no TFLOPS or speed-up on this page is a statement about a product.",
        "The formula was fitted to one case only: MI355X, bf16, forward, 2D, one group, ten small tiles, "
        "pipelines compv3 and compv4.",
        "Everything else is assumed: both backward directions, 3D, all other GPUs and data types, all other "
        "pipelines, group merging and split-K. Large tiles come out slower than they are.",
        "Efficiencies measure how well a model learns this formula. They do not forecast the efficiency on a GPU.",
    ),
    "recorded": (
        "No GPU was used for this page. The times are as good as the recording that they were read from; “How the "
        "times were recorded”, in the appendix, describes it.",
        "Efficiencies hold for the GPU, the driver and the library versions of the recording.",
    ),
    "measured": (
        "Efficiencies hold for this GPU, driver and compiler. “Quality of the times”, in the appendix, lists failures, "
        "noise and drift.",
    ),
}
"""By device kind, what a reader has to know about the times."""


@dataclass(frozen=True)
class Step:
    """What to do next, and a command that does it if there is one."""

    text: str
    command: str = ""


@partial(together, "Efficiency of the picks that ship")
def verdict(results: Results) -> Iterable[Row]:
    """Yield the verdict on each operation with its figures, beside the number of layers that they leave out."""
    for result in results.operations:
        one = result.evaluation
        made = verdict_of(one)
        yield {
            "operation": one.operation, "verdict": Badge(made.word, made.level),
            "mean, %": one.first.mean, "P10, %": one.first.p10, "worst layer, %": one.first.min,
            "weighted by time, %": one.by_time,
            "best of 2, mean, %": one.best_of_2.mean, "best of 3, mean, %": one.best_of_3.mean,
            "best possible mean, %": one.possible.mean, "best mean without a model, %": one.without_model.mean,
            "layers": one.layers, "more layers without a candidate": one.without_candidate,
            "their share of the time, %": 100 - one.covered_time,
        }  # fmt: skip


def reasons(results: Results) -> list[str]:
    """Return why operations are not good enough."""
    return [f"{one.evaluation.operation}: {reason}" for one in results.operations for reason in faults(one.evaluation)]


@partial(together, "The worst networks and layers of the picks that ship")
def worst(results: Results) -> Iterable[Row]:
    """Yield the worst networks of all operations, and the worst layer of each operation, a few of both."""
    evaluations = [result.evaluation for result in results.operations]
    networks = [(one, network) for one in evaluations for network in one.networks]
    for one, network in sorted(networks, key=lambda pair: pair[1].efficiency)[:WORST_PLACES]:
        left = f"; {network.without_candidate} more without a candidate" if network.without_candidate else ""
        failed = f"; {network.failed} picks failed" if network.failed else ""
        yield {
            "where": network.network, "operation": one.operation, "efficiency, %": network.efficiency,
            "what": f"{network.run}: {network.layers} layers{left}{failed}",
        }  # fmt: skip
    for one in sorted(evaluations, key=lambda one: one.worst_layer.efficiency)[:WORST_PLACES]:
        layer = one.worst_layer
        yield {
            "where": f"{layer.network} {layer.layer}", "operation": one.operation, "efficiency, %": layer.efficiency,
            "what": f"layer {without_defaults(layer.problem)}",
        }  # fmt: skip


def worth(results: Results) -> str:
    """Return what the times are worth, in a sentence."""
    return MEANING_OF_KIND[results.device_kind].format(device=results.device)


def following(results: Results) -> Iterator[Step]:
    """Yield what to do next."""
    library = library_of_arch(results.arch)
    bad = [result for result in results.operations if any(faults(result.evaluation))]
    if results.device_kind != "measured" and (results.device_kind == "simulated" or bad):
        if measure := measuring_command(results.arch):
            yield Step("Measure a GPU of this target; the report of that run replaces this one:", measure)
        else:
            larger = "tileseer import find-db FILE --arch ARCH --output FOLDER"
            yield Step("Import a database that covers more of your layers:", larger)
    if bad and results.device_kind != "recorded":
        for result in bad:
            for what, why in advice(result).items():
                yield Step(f"{result.evaluation.operation}: {what}: {why}.")
        yield Step("Then run again; only new measurements are made:", f"tileseer run --arch {results.arch}")
    if not bad and results.device_kind != "simulated":
        models = f"results/models/{results.arch}"
        yield Step("Rank the kernels of a layer of yours:", f"tileseer select {models} --problem {EXAMPLE}")
        if library.emitter is not None:
            yield Step("Write the sources of the few kernels to ship:", f"tileseer ship {models} --output kernels")
