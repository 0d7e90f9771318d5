"""What the reference generator refuses, quirks included. What *we* hold legal: ``tileseer.libraries.ck_tile.rules``.

``CONFIG_RULES`` apply while a rule set is enumerated. ``ARCH_RULES`` are the architecture filter, which the reference
may leave out: a kernel that breaks them still belongs to the rule set.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from tileseer.facts.arch import ArchSpecs
from tileseer.libraries.ck_tile.kernel import KernelConfig
from tileseer.libraries.ck_tile.rules import FULL_LOAD_PER_THREAD, PIPELINE_FITS_VARIANT, RULES, TRAIT_ALLOWED
from tileseer.libraries.rules import Columns, Rule, broken_rules

OPERATOR_OF_VARIANT = {"forward": "conv_fwd", "bwd_data": "conv_bwd_data", "bwd_weight": "conv_bwd_weight"}
"""The limits of the 2D operators are used for every dimensionality."""
BACKWARD_PIPELINES = ("compv3", "mem")
UNKNOWN_TO_ARCH_FILTER = "basic_async_v1"
"""Pipeline without interwave in our arch table that the filter's own copy of the table leaves out."""
WAVE32_MIN_WARP_K = 32


def filter_parts(kernels: Sequence[KernelConfig], arch: str, specs: ArchSpecs) -> dict[str, dict[str, np.ndarray]]:
    """Return what the rules read of Q kernels, [Q] each; ``covered``: waves x warp tile, with one wave along k assumed.

    The reference's rules read the arch's columns among those of the kernel.
    """
    parts = RULES.parts(kernels, arch, specs)
    k = parts["kernel"] | parts["arch"]
    waves = set(specs.arch(arch).waves)
    limits = {variant: specs.operator_limits(OPERATOR_OF_VARIANT[variant]) for variant in set(k["variant"])}
    for i, axis in enumerate("mnk"):
        k[f"least_{axis}"] = np.array([limits[one.variant].min_tile[i] for one in kernels])
        k[f"step_{axis}"] = np.array([limits[one.variant].alignment[i] for one in kernels])
        k[f"covered_{axis}"] = k[f"warp_tile_{axis}"] * (k[f"wave_{axis}"] if axis != "k" else 1)
    k["has_flat_waves"] = np.array([(one.wave_m, one.wave_n, 1) in waves for one in kernels])
    k["lists_no_warp_tile"] = np.array([not specs.warp_tiles(arch, one.dtype) for one in kernels])
    k["lds_limit"] = np.array([specs.lds_limit(one.pipeline) for one in kernels])
    return {"kernel": k, "arch": k}


def _wave32_instruction(k: Columns) -> np.ndarray:
    fits = k["wave_k"] * k["warp_tile_k"] <= k["tile_k"]
    return (k["wave_size"] != 32) | (fits & (k["warp_tile_m"] != 32) & (k["streamk"] == "none"))


def _each(holds: Iterable[np.ndarray]) -> np.ndarray:
    return np.logical_and.reduce(list(holds))


VECTORS_ONE_OR_EVEN = Rule(
    "vectors_one_or_even",
    "vectors of {vec_a}, {vec_b} and {vec_c} elements; one of them is neither 1 nor even",
    ("kernel",),
    # 6 or 10 pass here, though no such load exists.
    lambda k: _each((k[f"vec_{x}"] == 1) | (k[f"vec_{x}"] % 2 == 0) for x in "abc"),
)
UNTAGGED_WAVE32 = Rule(
    "wave32_instruction",
    "waves of 32 have no stream-K, no warp tile with m = 32 and no more than tile_k = {tile_k} along k; this is "
    "{wave_k} waves x warp tile {warp_tile_m}x{warp_tile_n}x{warp_tile_k}, stream-K {streamk}",
    ("kernel",),
    _wave32_instruction,
)
"""Of ``default``, which does not choose kernels for their data type."""
WAVE32_INSTRUCTION = Rule(
    "wave32_instruction",
    f"{UNTAGGED_WAVE32.reason}; warp tiles need k of at least {WAVE32_MIN_WARP_K}",
    ("kernel",),
    # The depth is only asked of kernels with a data-type tag: the reference means to exempt fp32, but compares the tag
    # with a word that no tag ever is. The table of gfx11 and gfx12 then refuses every kernel that this rule lets pass.
    lambda k: _wave32_instruction(k) & ((k["wave_size"] != 32) | (k["warp_tile_k"] >= WAVE32_MIN_WARP_K)),
)
CONFIG_RULES = (
    TRAIT_ALLOWED,
    Rule(
        "streamk_is_bwd_weight",
        "stream-K exists for bwd_weight only, not for {variant}",
        ("kernel",),
        lambda k: (k["streamk"] == "none") | (k["variant"] == "bwd_weight"),
    ),
    replace(PIPELINE_FITS_VARIANT, name="compv5_is_forward"),
    VECTORS_ONE_OR_EVEN,
    Rule(
        "waves_listed",
        "waves ({wave_m}, {wave_n}, {wave_k}) are not among those of {arch}",
        ("kernel",),
        lambda k: k["has_waves"],
    ),
    WAVE32_INSTRUCTION,
    replace(FULL_LOAD_PER_THREAD, name="compv6_has_loads"),
)
UNTAGGED_CONFIG_RULES = tuple(UNTAGGED_WAVE32 if rule is WAVE32_INSTRUCTION else rule for rule in CONFIG_RULES)
ARCH_RULES = (
    Rule(
        "tile_limits",
        "the operator needs tiles of at least {least_m}x{least_n}x{least_k} in steps of {step_m}x{step_n}x{step_k}; "
        "this is {tile_m}x{tile_n}x{tile_k}",
        ("kernel",),
        lambda k: _each((k[f"tile_{x}"] >= k[f"least_{x}"]) & (k[f"tile_{x}"] % k[f"step_{x}"] == 0) for x in "mnk"),
    ),
    Rule(
        "tile_covers_waves",
        "waves x warp tile is {covered_m}x{covered_n}x{covered_k}, larger than {tile_m}x{tile_n}x{tile_k}",
        ("kernel",),
        lambda k: _each(k[f"covered_{x}"] <= k[f"tile_{x}"] for x in "mnk"),
    ),
    Rule(
        "flat_waves_listed",
        "waves ({wave_m}, {wave_n}, 1) are not among those of {arch}",
        ("kernel",),
        lambda k: k["has_flat_waves"],
    ),
    # An arch without any warp tile for the data type is not checked (fp32 on RDNA).
    Rule(
        "warp_tile_listed",
        "warp tile ({warp_tile_m}, {warp_tile_n}, {warp_tile_k}) is no {dtype} matrix instruction of {arch}",
        ("kernel",),
        lambda k: k["lists_no_warp_tile"] | k["has_warp_tile"],
    ),
    # This refuses many that build and run.
    Rule(
        "backward_pipeline",
        f"{{pipeline}} is not among the backward pipelines {', '.join(BACKWARD_PIPELINES)}",
        ("kernel",),
        lambda k: (k["variant"] == "forward") | np.isin(k["pipeline"], BACKWARD_PIPELINES),
    ),
    Rule(
        "listed_trait_allowed",
        TRAIT_ALLOWED.reason,
        ("kernel",),
        lambda k: (k["pipeline"] == UNKNOWN_TO_ARCH_FILTER) | ~k["excluded"],
    ),
    # Neither a second buffer nor the arch's LDS is looked at.
    Rule(
        "lds_limit",
        "A and B take {operand_bytes} bytes of LDS; {pipeline} may use {lds_limit}",
        ("kernel",),
        lambda k: k["operand_bytes"] <= k["lds_limit"],
    ),
    Rule(
        "tile_divides",
        "{tile_m}x{tile_n}x{tile_k} is no multiple of waves x warp tile = {covered_m}x{covered_n}x{covered_k}",
        ("kernel",),
        lambda k: _each(k[f"tile_{x}"] % k[f"covered_{x}"] == 0 for x in "mnk"),
    ),
)


def without_broken(
    rules: Sequence[Rule], kernels: Sequence[KernelConfig], arch: str, specs: ArchSpecs
) -> list[KernelConfig]:
    """Return the kernels that break none of the rules, in their order."""
    if not kernels:
        return []
    broken = broken_rules(rules, filter_parts(kernels, arch, specs))
    return [kernel for kernel, refused in zip(kernels, broken, strict=True) if not refused]
