"""Smaller sets drawn from a large one so that every kind of kernel stays: by rank within a category, or in turn.

The result depends on what the large set holds: a sample of one direction is no part of the sample of all.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from tileseer.kernels.gemm_kernel import Kernel


class HasKernel(Protocol):
    """What is drawn."""

    @property
    def kernel(self) -> Kernel:
        """A kernel of the large set."""


Item = TypeVar("Item", bound=HasKernel)


def category(kernel: Any) -> tuple[str, str]:
    """What kind of kernel it is, the first kind that fits, and its data type."""
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


def every_nth(items: Sequence[Item], step: int) -> list[Item]:
    """Every ``step``-th item of each category, in order; a smaller category gives its first.

    Then the first item of each (variant, dtype, pipeline, scheduler) that would be missing is added.
    """
    chosen: set[int] = set()
    for ranks in _grouped(range(len(items)), lambda i: category(items[i].kernel)):
        chosen.update(ranks[step - 1 :: step] or ranks[:1])
    covered = {_traits(items[i].kernel) for i in chosen}
    for index, item in enumerate(items):
        traits = _traits(item.kernel)
        if traits not in covered:
            covered.add(traits)
            chosen.add(index)
    return [items[index] for index in sorted(chosen)]


def in_turn(items: Sequence[Item], at_least: int) -> list[Item]:
    """The first item of each category and dimensionality, then the second of each ... up to ``at_least``."""
    groups = list(_grouped(items, lambda item: (*category(item.kernel), item.kernel.ndim)))
    rounds = range(max(map(len, groups), default=0))
    turns = [group[turn] for turn in rounds for group in groups if turn < len(group)]
    return turns[: max(at_least, len(groups))]


Element = TypeVar("Element")


def _grouped(items: Iterable[Element], key: Callable[[Element], Hashable]) -> Iterable[list[Element]]:
    groups: dict[Hashable, list[Element]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups.values()


def _traits(kernel: Any) -> tuple[str, ...]:
    loop = (kernel.pipeline, kernel.scheduler) if kernel.kind == "implicit_gemm" else (kernel.kind,)
    return kernel.variant, kernel.dtype, *loop
