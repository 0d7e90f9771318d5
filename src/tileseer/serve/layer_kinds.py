"""The picks by kind of layer: how many, what the first pick and the better of two lose, and at which choice."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from tileseer.core.documents import Document
from tileseer.learn import efficiency
from tileseer.learn.model_schema import Summary
from tileseer.learn.ranking import Scored


class WorstChoice(Document):
    """The two candidates between which the picks of some layers lose most."""

    pick: str
    best: str
    layers: int
    share: float
    """Of the loss of these layers, percent."""
    loss: float
    """Mean, percent."""


class KindPart(Document):
    """The picks of one kind of layer."""

    layers: int
    efficiency: Summary
    best_of_2: Summary
    possible: Summary
    """As ``Evaluation.possible``."""
    share_of_time: float
    """Of the fastest candidates of all layers, percent."""
    worst_choice: WorstChoice | None = None
    """None where every pick is the fastest."""


def bound_of(possible: np.ndarray, picked: np.ndarray) -> Summary:
    """Return the summary of the best possible efficiencies: what was reached with a little luck is possible."""
    figures = Summary.of(possible).model_dump(), Summary.of(picked).model_dump()
    return Summary(**{name: max(one[name] for one in figures) for name in Summary.model_fields})


def parts_by_kind(scored: Scored, kinds: np.ndarray, possible: np.ndarray, time: np.ndarray) -> dict[str, KindPart]:
    """Return the picks by kind; all arrays are of the R judged problems.

    ``possible``: efficiencies (0..1) of ``Evaluation.possible``; ``time``: of the fastest candidates with all uses.
    """
    of_two = scored.fastest_of(2)
    names = scored.dataset.candidates["candidate"].to_numpy()
    chosen = np.where(scored.picks >= 0, names[scored.picks], "")
    parts = {}
    for kind in sorted(set(kinds)):
        rows = kinds == kind
        choices = _choices(chosen[rows], names[scored.best[rows]], 1 - scored.picked[rows])
        parts[str(kind)] = KindPart(
            layers=int(rows.sum()),
            efficiency=Summary.of(scored.picked[rows]),
            best_of_2=Summary.of(of_two[rows]),
            possible=bound_of(possible[rows], scored.picked[rows]),
            share_of_time=efficiency.percent(time[rows].sum() / time.sum() if time.sum() else 0.0),
            worst_choice=next(choices, None),
        )
    return parts


def _choices(pick: np.ndarray, best: np.ndarray, loss: np.ndarray) -> Iterator[WorstChoice]:
    """Yield the choices by how much the picks lose, the worst first."""
    table = pd.DataFrame({"pick": pick, "best": best, "loss": loss})[loss > 0]
    sums = table.groupby(["pick", "best"])["loss"].agg(["sum", "count"]).sort_values("sum", ascending=False)
    for choice, lost, count in zip(sums.index, sums["sum"], sums["count"], strict=True):
        yield WorstChoice(
            pick=choice[0],
            best=choice[1],
            layers=int(count),
            share=efficiency.percent(lost / loss.sum()),
            loss=efficiency.percent(lost / count),
        )
