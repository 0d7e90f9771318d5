"""Smaller sets drawn from a large one so that every kind of kernel stays: by rank within a category, or in turn.

The result depends on what the large set holds: a sample of one direction is no part of the sample of all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from tileseer.families.ck_tile.depthwise import VARIANT as DEPTHWISE_VARIANT
from tileseer.families.ck_tile.depthwise import DepthwiseConfig
from tileseer.families.ck_tile.kernel import KernelConfig

Kernel = KernelConfig | DepthwiseConfig
Item = TypeVar("Item")


def category(kernel: Kernel) -> tuple[str, str]:
    """Return what kind of kernel it is, the first kind that fits, and its data type."""
    if isinstance(kernel, DepthwiseConfig):
        return "depthwise", kernel.dtype
    kinds = (
        ("stream_k", kernel.streamk != "none"),
        ("split_image", kernel.split_image),
        ("merged_groups", kernel.num_groups_to_merge > 1),
        ("two_stage", kernel.two_stage),
        ("explicit_gemm", kernel.explicit_gemm),
    )
    return next((kind for kind, holds in kinds if holds), "regular"), kernel.dtype


def every_nth(items: Sequence[Item], kernel_of: Callable[[Item], Kernel], step: int) -> list[Item]:
    """Return every ``step``-th item of each category, in order; a smaller category gives its first.

    Then the first item of each (variant, dtype, pipeline, scheduler) that would be missing is added.
    """
    chosen: set[int] = set()
    for ranks in _grouped(range(len(items)), lambda i: category(kernel_of(items[i]))):
        chosen.update(ranks[step - 1 :: step] or ranks[:1])
    covered = {_traits(kernel_of(items[i])) for i in chosen}
    for index, item in enumerate(items):
        traits = _traits(kernel_of(item))
        if traits not in covered:
            covered.add(traits)
            chosen.add(index)
    return [items[index] for index in sorted(chosen)]


def in_turn(items: Sequence[Item], kernel_of: Callable[[Item], Kernel], at_least: int) -> list[Item]:
    """Return the first item of each category and dimensionality, then the second of each ... up to ``at_least``."""
    groups = list(_grouped(items, lambda item: (*category(kernel_of(item)), _ndim(kernel_of(item)))))
    rounds = range(max(map(len, groups), default=0))
    turns = [group[turn] for turn in rounds for group in groups if turn < len(group)]
    return turns[: max(at_least, len(groups))]


def _grouped(items: Iterable[Item], key: Callable[[Item], Hashable]) -> Iterable[list[Item]]:
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups.values()


def _ndim(kernel: Kernel) -> int:
    return 2 if isinstance(kernel, DepthwiseConfig) else kernel.ndim


def _traits(kernel: Kernel) -> tuple[str, str, str, str]:
    if isinstance(kernel, DepthwiseConfig):
        return DEPTHWISE_VARIANT, kernel.dtype, "depthwise", ""
    return kernel.variant, kernel.dtype, kernel.pipeline, kernel.scheduler
