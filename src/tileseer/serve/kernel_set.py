"""The small kernel set: the few kernels that a library has to build to lose next to nothing.

This is the facility location problem: open few kernels so that the weighted sum over problems of the best open one is
greatest (Cornuejols, Fisher, Nemhauser 1977). Kernels are opened one by one, each time the one that adds most; then one
is exchanged for another while that gains.
"""

import numpy as np

LOSS = 0.01
"""Mean efficiency that the set may lose on training problems, unless a user says another share."""
FLOOR = 0.7
"""Share of its best efficiency that the set keeps of each training problem. It costs one kernel at most of a library of
GEMMs; without it, an unseen layer of an H200 had 57 %, with it 77 %."""
LEAST_GAIN = 1e-9
"""Smaller ones are rounding: an exchange for one could go on for ever."""


def best_by_kernel(efficiency: np.ndarray, kernel: np.ndarray, kernels: int) -> np.ndarray:
    """Return the best efficiency of the candidates of each kernel, [P, kernels]; ``kernel`` [Q] numbers them."""
    best = np.zeros((len(efficiency), kernels))
    np.maximum.at(best.T, kernel, efficiency.T)
    return best


def greedy_order(value: np.ndarray) -> list[int]:
    """Return columns of ``value`` [P, K], each the one that adds most to the sum of the rows' best, until none adds."""
    best = np.zeros(len(value))
    chosen: list[int] = []
    while True:
        gain = np.maximum(value - best[:, None], 0).sum(axis=0)
        column = int(gain.argmax())
        if gain[column] <= LEAST_GAIN:
            return chosen
        chosen.append(column)
        best = np.maximum(best, value[:, column])


def greedy_gains(value: np.ndarray) -> list[float]:
    """Return what each column of ``greedy_order`` adds; it falls."""
    sums = np.maximum.accumulate(value[:, greedy_order(value)], axis=1).sum(axis=0)
    return np.diff(sums, prepend=0.0).tolist()


def exchange_kernels(value: np.ndarray, chosen: list[int]) -> list[int]:
    """Return ``chosen`` columns with one exchanged for another as long as the sum of the rows' best grows."""
    chosen = list(chosen)
    while chosen:
        own = value[:, chosen]
        owner = own.argmax(axis=1)
        first = own.max(axis=1)
        others = np.where(np.arange(len(chosen)) == owner[:, None], 0, own)
        second = others.max(axis=1)
        beyond_first = np.maximum(value - first[:, None], 0)
        # Of a row whose best one leaves: what each column adds then.
        more = np.maximum(value - second[:, None], 0) - beyond_first
        to_all, lost = beyond_first.sum(axis=0), first - second
        gains = []
        for place in range(len(chosen)):
            rows = owner == place
            added = to_all + more[rows].sum(axis=0)
            best = int(added.argmax())
            gains.append((added[best] - lost[rows].sum(), place, best))
        gain, place, column = max(gains)
        if gain <= LEAST_GAIN:
            break
        chosen[place] = column
    return chosen


def covering_value(efficiency: np.ndarray, weight: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """Return the value [P, K] of kernels by which a covered problem counts more than all efficiencies together.

    ``efficiency`` [P, K] is 0 where a kernel cannot run a problem; ``weight`` [P] sums to 1. A kernel covers a problem
    that it runs above ``floor`` times the best efficiency.
    """
    return efficiency * weight[:, None] + (efficiency > floor * efficiency.max(axis=1, keepdims=True, initial=0.0))


def smallest_set(
    efficiency: np.ndarray, weight: np.ndarray, loss: float, most: int | None = None, floor: float = 0.0
) -> list[int]:
    """Return a small set of columns, best first, that runs each problem that one of all runs, above ``floor``.

    The weighted mean of the best in the set is at least (1 - ``loss``) times that of all columns. Both hold if ``most``
    columns are enough for them.
    """
    value = covering_value(efficiency, weight, floor)
    least = efficiency.max(axis=1).astype(bool).sum() + (1 - loss) * weight @ efficiency.max(axis=1)
    chosen = greedy_order(value)
    sums = np.maximum.accumulate(value[:, chosen], axis=1).sum(axis=0)
    size = int(np.searchsorted(sums >= least - LEAST_GAIN, True)) + 1 if len(chosen) else 0
    size = min(size, len(chosen), most or len(chosen))
    chosen = exchange_kernels(value, chosen[:size])
    while size > 1:
        kept = [[other for other in chosen if other != column] for column in chosen]
        # Without the one that is missed least.
        fewer = exchange_kernels(value, max(kept, key=lambda rest: float(value[:, rest].max(axis=1).sum())))
        if value[:, fewer].max(axis=1).sum() < least - LEAST_GAIN:
            break
        chosen, size = fewer, size - 1
    return [chosen[place] for place in greedy_order(value[:, chosen])] if chosen else []
