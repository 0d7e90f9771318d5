"""The pruned kernel set: the few kernels that a dispatcher has to link to lose next to nothing.

Kernels are added one by one, each time the one that raises the mean efficiency of the training problems most, until
the mean of the best kernel in the set is within the allowed loss of the whole pool's; then those that later ones made
superfluous are dropped again. That is the usual greedy cover, and no proof of the smallest set.
"""

import numpy as np


def by_kernel(efficiency: np.ndarray, kernel: np.ndarray, kernels: int) -> np.ndarray:
    """The best efficiency of the candidates of each kernel, [P, kernels]; ``kernel`` [Q] numbers them."""
    best = np.zeros((len(efficiency), kernels))
    np.maximum.at(best.T, kernel, efficiency.T)
    return best


def smallest(efficiency: np.ndarray, loss: float) -> list[int]:
    """The columns of a small set, best first; ``efficiency`` [P, K] is 0 where a kernel cannot run a problem.

    The mean over problems of the best in the set is at least (1 - ``loss``) times that of all columns.
    """
    wanted = (1 - loss) * efficiency.max(axis=1).mean()
    chosen: list[int] = []
    best = np.zeros(len(efficiency))
    while best.mean() < wanted:
        gain = np.maximum(efficiency, best[:, None]).mean(axis=0)
        chosen.append(int(gain.argmax()))
        best = np.maximum(best, efficiency[:, chosen[-1]])
    for column in list(chosen):
        rest = [other for other in chosen if other != column]
        if rest and efficiency[:, rest].max(axis=1).mean() >= wanted:
            chosen = rest
    return chosen
