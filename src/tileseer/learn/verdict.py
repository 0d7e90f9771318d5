"""Whether a model is good enough to use, and what says no.

The limits are relative to what a model can reach at best (``validation_report.NoiseFloor``): on noisy times, less than
100 %.
"""

from collections.abc import Iterator

from tileseer.learn.validation_report import Validation

MEAN_POINTS = 2.0
"""The mean efficiency may be so far below the best possible one."""
P10_POINTS = 5.0
"""The same of the 10th percentile."""


def faults(report: Validation) -> Iterator[str]:
    """What is not good enough; nothing if the model is."""
    best = report.noise_floor.best.efficiency
    for name, value, possible, limit in (
        ("mean", report.efficiency.mean, best.mean, MEAN_POINTS),
        ("10th percentile", report.efficiency.p10, best.p10, P10_POINTS),
    ):
        if value < possible - limit:
            yield f"{name} {value:.1f} %, {possible:.1f} % is possible (limit: {limit:g} points)"
    name, baseline = max(report.baselines.items(), key=lambda item: item[1].efficiency.mean)
    low = report.interval["mean"][0]
    if low <= baseline.efficiency.mean:
        yield f"{name.replace('_', ' ')} has {baseline.efficiency.mean:.1f} %, the model at least {low:.1f} %"


def verdict_words(report: Validation) -> str:
    """The verdict in words."""
    reasons = "; ".join(faults(report))
    return f"not good enough: {reasons}" if reasons else "good enough"
