"""Lists of enumerated kernels for people and programs: tab-separated or JSON, one row a kernel."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from tileseer.families.ck_tile import emit
from tileseer.families.ck_tile.depthwise import DepthwiseConfig
from tileseer.reference.named import Enumerated

COLUMNS = ("kernel", "arch", "arch_filter", "arch_filter_reason", "flags", "flag_reasons", "built_as")
"""``arch_filter`` is ``pass`` or the rule that refuses; ``flags`` are separated by commas, their reasons by ``; ``.

``built_as`` is the name with the label of the true layout, under which the kernel is emitted.
"""
PASS = "pass"


def row(item: Enumerated, arch: str) -> dict[str, str]:
    """Return the columns of one kernel."""
    return {
        "kernel": item.name,
        "arch": arch,
        "arch_filter": item.rule or PASS,
        "arch_filter_reason": item.reason,
        "flags": ",".join(flag.name for flag in item.flags),
        "flag_reasons": "; ".join(flag.reason for flag in item.flags),
        "built_as": emit.name(item.built_as),
    }


def as_tsv(items: Iterable[tuple[str, Enumerated]]) -> Iterator[str]:
    """Yield the lines of a table, its head first; ``items`` are (arch, kernel)."""
    yield "\t".join(COLUMNS) + "\n"
    for arch, item in items:
        yield "\t".join(row(item, arch).values()) + "\n"


def rows(items: Iterable[tuple[str, Enumerated]]) -> list[dict[str, Any]]:
    """Return a record a kernel: beside the columns its family and fields."""
    found: list[dict[str, Any]] = []
    for arch, item in items:
        family = "depthwise" if isinstance(item.kernel, DepthwiseConfig) else "implicit_gemm"
        found.append(row(item, arch) | {"family": family, "fields": asdict(item.kernel)})
    return found


def as_json(items: Iterable[tuple[str, Enumerated]]) -> str:
    """Return ``rows`` as a JSON list."""
    return json.dumps(rows(items), indent=1, sort_keys=True) + "\n"
