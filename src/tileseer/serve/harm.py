"""What the picks cost where a library that offers the candidates would have chosen better itself."""

import numpy as np

from tileseer.core.documents import Document
from tileseer.learn import efficiency
from tileseer.learn.own_choice import EFFICIENCY_OF_A_FAILED_PICK, LARGE_LOSS, LOSS, MOST_LOSERS

ALL = "all"
"""Name of the layers of all kinds together."""


class Harm(Document):
    """The picks of some layers beside what the library would run there without a model."""

    layers: int
    replaced: float
    """Share of the layers whose pick is another, percent."""
    gained: float | None
    """Share of the room between the own choice and the fastest candidate, in logarithms of time, percent."""
    slower: float
    """Share of the picks that take 2 % longer, percent."""
    slower_at_most: float
    """Upper end of its bootstrap interval over layers."""
    slowest: float
    """Time of the worst pick over that of the own choice."""
    harmless: float
    """Share of the bootstrap's draws of layers in which at most 1 % of the picks take 2 % longer and none 5 %."""


def harm_of(own: np.ndarray, picked: np.ndarray, replaced: np.ndarray) -> Harm:
    """Return the harm by the efficiencies of own choices and picks, and by which picks are others, all [R]."""
    gain = np.log(np.maximum(picked, EFFICIENCY_OF_A_FAILED_PICK) / own)
    room = -np.log(own).sum()
    slower, much = (gain < -np.log1p(loss) for loss in (LOSS, LARGE_LOSS))
    return Harm(
        layers=len(own),
        replaced=efficiency.percent(replaced.mean()),
        gained=efficiency.percent(gain.sum() / room) if room > 0 else None,
        slower=efficiency.percent(slower.mean()),
        slower_at_most=efficiency.interval_of_mean(slower)[1],
        slowest=round(float(np.exp(-gain.min())), 4),
        harmless=efficiency.percent(
            efficiency.share_of_draws(np.stack([slower, much], axis=1), np.array([MOST_LOSERS, 0.0]))
        ),
    )


def harm_by_kind(own: np.ndarray, picked: np.ndarray, replaced: np.ndarray, kinds: np.ndarray) -> dict[str, Harm]:
    """Return the harm of all layers, and by kind of layer (text [R])."""
    parts = {ALL: np.ones(len(own), bool), **{kind: kinds == kind for kind in sorted(set(kinds))}}
    return {name: harm_of(own[rows], picked[rows], replaced[rows]) for name, rows in parts.items()}
