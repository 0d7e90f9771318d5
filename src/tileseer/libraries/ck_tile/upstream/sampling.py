"""Smaller sets drawn from a large one so that every kind of kernel stays: by rank within a category, or in turn.

The result depends on what the large set holds: a sample of one direction is no part of the sample of all.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain, zip_longest
from typing import Any, TypeVar

Element = TypeVar("Element")


def category(kernel: Any) -> tuple[str, str]:
    """Return what kind of kernel it is, the first kind that fits, and its data type."""
    if kernel.kind != "implicit_gemm":
        return kernel.kind, kernel.dtype
    kinds = (
        ("stream_k", kernel.streamk != "none"),
        ("split_image", kernel.split_image),
        ("merged_groups", kernel.num_groups_to_merge > 1),
        ("two_stage", kernel.two_stage),
        ("explicit_gemm", kernel.explicit_gemm),
    )
    return next((kind for kind, holds in kinds if holds), "regular"), kernel.dtype


def every_nth(kernels: Sequence[Any], step: int) -> list[int]:
    """Return the ranks of every ``step``-th kernel of each category, in order; a smaller category gives its first.

    Then the first kernel of each (variant, dtype, pipeline, scheduler) that would be missing is added.
    """
    groups = _grouped(range(len(kernels)), lambda rank: category(kernels[rank]))
    chosen = {rank for ranks in groups for rank in ranks[step - 1 :: step] or ranks[:1]}
    for ranks in _grouped(range(len(kernels)), lambda rank: _traits(kernels[rank])):
        if chosen.isdisjoint(ranks):
            chosen.add(ranks[0])
    return sorted(chosen)


def in_turn(kernels: Sequence[Any], at_least: int) -> list[int]:
    """Return the ranks of the first kernel of each category and dimensionality, then of the second, so many."""
    groups = _grouped(range(len(kernels)), lambda rank: (*category(kernels[rank]), kernels[rank].ndim))
    turns = [rank for rank in chain.from_iterable(zip_longest(*groups)) if rank is not None]
    return turns[: max(at_least, len(groups))]


def _grouped(items: Iterable[Element], key: Callable[[Element], Hashable]) -> list[list[Element]]:
    groups: dict[Hashable, list[Element]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def _traits(kernel: Any) -> tuple[str, ...]:
    loop = (kernel.pipeline, kernel.scheduler) if kernel.kind == "implicit_gemm" else (kernel.kind,)
    return kernel.variant, kernel.dtype, *loop
