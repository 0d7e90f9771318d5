"""The first screen: the verdict on what ships, its speed, where it is worst, and what to do next."""

from collections.abc import Iterable, Sequence
from functools import partial

from tileseer.report.results import Results
from tileseer.report.tables import Badge, Row, together
from tileseer.serve.evaluation import Evaluation
from tileseer.serve.verdict import faults, verdict_of

AGAINST = "speed against "
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


def headline(results: Results) -> str:
    """Return in one sentence how many operations are good enough."""
    found = [verdict_of(result.evaluation) for result in results.operations]
    count, bad = len(found), sum(one.level == "bad" for one in found)
    where = " in the simulation" if results.device_kind == "simulated" else ""
    if bad:
        return f"{bad} of {count} operations {'is' if bad == 1 else 'are'} not good enough{where}"
    return f"All {count} operations are good enough{where}" if count > 1 else f"The picks are good enough{where}"


def verdicts(results: Results) -> Sequence[Row]:
    """Return what decides of each operation."""
    return [_verdict(result.evaluation) for result in results.operations]


def _verdict(one: Evaluation) -> Row:
    made, network = verdict_of(one), one.worst_network
    worst = f"{network.network} {network.efficiency:.1f} %" if network else f"none; worst layer {one.first.min:.1f} %"
    speeds = {f"{AGAINST}{name}": f"{speed:.3f}" for name, speed in one.speeds.items()}
    return {
        "operation": one.operation, "verdict": Badge(made.word, made.level), **speeds,
        "efficiency": f"{one.first.mean:.1f} %", "worst network": worst,
    }  # fmt: skip


def reasons(results: Results) -> list[str]:
    """Return the limits that are missed, one line each."""
    return [f"{one.evaluation.operation}: {reason}" for one in results.operations for reason in faults(one.evaluation)]


@partial(together, "Efficiency of the picks that ship")
def figures(results: Results) -> Iterable[Row]:
    """Yield the figures of each operation, beside the number of layers that they leave out, if there are any."""
    evaluations = [result.evaluation for result in results.operations]
    missing = any(one.without_candidate for one in evaluations)
    for one in evaluations:
        left_out = {
            "more layers without a candidate": one.without_candidate,
            "their share of the time, %": 100 - one.covered_time,
        }
        yield {
            "operation": one.operation, "mean, %": one.first.mean,
            "best possible mean without timing, %": one.possible.mean,
            "mean without a model, %": one.best_baseline.efficiency.mean, "weighted by time, %": one.by_time,
            "P10, %": one.first.p10, "worst layer, %": one.first.min,
            "fastest of 2, timed, mean, %": one.best_of_2.mean, "fastest of 3, timed, mean, %": one.best_of_3.mean,
            "layers": one.layers, **(left_out if missing else {}),
        }  # fmt: skip
