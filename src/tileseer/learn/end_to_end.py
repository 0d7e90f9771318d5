"""What the picks cost a whole network, and how their efficiency falls with the distance to the training problems."""

from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
import pandas as pd

from tileseer.learn import efficiency
from tileseer.learn.ranking import Scored
from tileseer.learn.validation_report import Distance, NetworkTime, RunCost, Selectors, Stratum

DISTANCES = (0.5, 1.0, 1.5, 2.0, 3.0)
"""Octaves to the nearest training problem (``design.distances``) that bound the classes of ``by_distance``."""


def of_runs(
    scored: Scored, uses: pd.DataFrame, gflop: np.ndarray, floors: Mapping[str, np.ndarray]
) -> list[NetworkTime]:
    """What the picks cost each run of a network, worst first.

    ``uses`` has the columns of ``problem_table.USES``, ``gflop`` [R] is the work of a problem. ``end_to_end`` is the
    time of the best candidates over that of the picks, each layer as often as it occurs, over the layers whose pick
    ran; it is 0 when none did. ``flop_weighted`` is the mean efficiency weighted by FLOP, where a pick that failed
    counts 0.
    ``flop_scored`` is the share of the run's FLOP in its scored layers: on the others nothing can run. ``noise_floor``
    has both figures of the selectors ``floors`` (name to the efficiency of their picks, [R]).
    """
    best_ms = gflop / scored.dataset.best_tflops[scored.rows]
    keys = list(scored.problems["problem_key"])
    picks = pd.DataFrame({"problem_key": keys, "best_ms": best_ms, "picked": scored.picked, **floors})
    table = uses.merge(picks, on="problem_key", how="inner")
    runs = [
        NetworkTime(
            network=str(network),
            run=str(run),
            n_layers=len(part),
            n_failed=int((part["picked"] <= 0).sum()),
            **_cost(part, "picked").model_dump(),
            flop_scored=efficiency.percent(part["flop_share"].sum()),
            noise_floor=Selectors[RunCost](**{floor: _cost(part, floor) for floor in floors}),
        )
        for (network, run), part in table.groupby(["network", "run"], sort=True)
    ]
    return sorted(runs, key=lambda run: (run.end_to_end, run.network, run.run))


def _cost(part: pd.DataFrame, selector: str) -> RunCost:
    picked = part[selector]
    ran = picked > 0
    best = (part["occurrences"] * part["best_ms"])[ran]
    taken = (best / picked[ran]).sum()
    return RunCost(
        end_to_end=efficiency.percent(best.sum() / taken if ran.any() else 0.0),
        flop_weighted=efficiency.percent((part["flop_share"] * picked).sum() / part["flop_share"].sum()),
    )


def by_distance(uses: pd.DataFrame, keys: pd.Series, stratum: Callable[[np.ndarray], Stratum]) -> list[Distance]:
    """Efficiency of the picks by distance to the nearest training problem, nearest class first.

    ``above`` and ``up_to`` bound a class in octaves; the last class has problems of a kind that is missing from
    training. ``stratum`` gives the figures of some of the problems ``keys``, bool [R].
    """
    nearest = uses.drop_duplicates("problem_key").set_index("problem_key")["nearest_training"]
    distance = nearest.reindex(list(keys)).to_numpy()
    bounds = [0.0, *DISTANCES, np.finfo(np.float64).max, np.inf]
    classes = []
    for low, high in pairwise(bounds):
        part = (distance > low) & (distance <= high)
        if part.any():
            classes.append(
                Distance(
                    above=low if low < bounds[-2] else None,
                    up_to=high if high < bounds[-2] else None,
                    of_a_known_kind=bool(high < np.inf),
                    **dict(stratum(part)),
                )
            )
    return classes
