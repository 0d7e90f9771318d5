"""Kernels that the reference enumerates but that are known to be wrong, unsupported or impossible to compile.

A flagged kernel keeps its place in a rule set; it is left out of a build unless its flag is asked for. A flag is a
legality rule that the kernel breaks, or a defect of the table here. Numbers such as B7 are those of
docs/internals/reference.md.
"""

from collections.abc import Collection, Sequence

import numpy as np

from tileseer.core.errors import UserError
from tileseer.facts.arch import ArchSpecs
from tileseer.libraries.ck_tile.kernel import KernelConfig
from tileseer.libraries.ck_tile.rules import RULES
from tileseer.libraries.enumeration import ALL
from tileseer.libraries.rules import BrokenRule, Columns, Rule, broken_rules

ASYNC_WAVES_N, ASYNC_WARP_N = 2, 16
"""What the asynchronous load of basic_async_v1 is laid out for."""


def _writes_whole_output(k: Columns) -> np.ndarray:
    """Tell interwave weight gradients with several waves in m x n, whose results the reference documents as wrong."""
    return ~(
        (k["variant"] == "bwd_weight")
        & (k["scheduler"] == "interwave")
        & np.isin(k["pipeline"], ("compv1", "basic_v1", "mem"))
        & (k["specialization"] == "default")
        & (k["dtype"] != "fp32")
        & (k["wave_m"] * k["wave_n"] > 1)
    )


STREAMK_ASYNC_FP32 = Rule(
    "streamk_async_fp32",
    "stream-K with basic_async_v1 does not exist for fp32",
    ("kernel",),
    lambda k: (k["streamk"] == "none") | (k["pipeline"] != "basic_async_v1") | (k["dtype"] != "fp32"),
)
DEFECTS = (
    Rule(
        "half_zero_output",
        "interwave {pipeline} with {wave_m}x{wave_n} waves leaves half of dW zero where K a group is small",
        ("kernel",),
        _writes_whole_output,
    ),
    STREAMK_ASYNC_FP32,
    Rule(
        "async_layout",
        f"basic_async_v1 wants {ASYNC_WAVES_N} waves along n and warp tile n = {ASYNC_WARP_N}; "
        "these are {wave_n} and {warp_tile_n}",
        ("kernel",),
        lambda k: (
            (k["pipeline"] != "basic_async_v1") | ((k["wave_n"] == ASYNC_WAVES_N) & (k["warp_tile_n"] == ASYNC_WARP_N))
        ),
    ),
    Rule(
        "narrow_warp_tile",
        "warp tiles of {warp_tile_m}x{warp_tile_n} are excluded for convolutions",
        ("kernel",),
        # 4x64 or 64x4.
        lambda k: (k["warp_tile_m"] * k["warp_tile_n"] != 256) | (np.minimum(k["warp_tile_m"], k["warp_tile_n"]) != 4),
    ),
)
PIPELINE_REPLACED = "pipeline_replaced"
"""Flag of a kernel of an instance file that asks for another pipeline (B26)."""
ILLEGAL = tuple(rule.name for rule in RULES.legality)
FLAG_NAMES = (*(rule.name for rule in DEFECTS), PIPELINE_REPLACED, *ILLEGAL)
"""Of all flags."""


def flags_of(kernels: Sequence[KernelConfig], arch: str, specs: ArchSpecs) -> list[list[BrokenRule]]:
    """Return every flag of each kernel on an arch; none means that it is built."""
    return broken_rules((*DEFECTS, *RULES.legality), RULES.parts(kernels, arch, specs)) if kernels else []


def check_flags(names: Collection[str]) -> None:
    """Refuse a flag that does not exist."""
    unknown = sorted(set(names) - {ALL, *FLAG_NAMES})
    if unknown:
        raise UserError(f"unknown flag {unknown[0]!r}; use {ALL} or some of {', '.join(FLAG_NAMES)}")
