"""Kernels that the reference enumerates but that are known to be wrong, unsupported or impossible to compile.

A flagged kernel keeps its place in a rule set; it is left out of a build unless its flag is asked for. A flag is a rule
of ``tileseer.families.ck_tile.validity`` that the kernel fails, or a defect of the table here, each with its reason.
Numbers such as B7 are those of docs/reference.md.
"""

from collections.abc import Collection
from dataclasses import dataclass

from tileseer.core.errors import UserError
from tileseer.families.ck_tile import depthwise, validity
from tileseer.families.ck_tile.depthwise import DepthwiseConfig
from tileseer.families.ck_tile.kernel import KernelConfig
from tileseer.families.enumeration import Rule, first_of
from tileseer.gpu.arch import ArchSpecs

ALL = "all"
ASYNC_WAVES_N, ASYNC_WARP_N = 2, 16
NARROW_WARP_TILES = ((4, 64), (64, 4))


@dataclass(frozen=True)
class Flag:
    """Why a kernel is not built: the name of the flag and the reason."""

    name: str
    reason: str


@dataclass(frozen=True)
class Defect:
    """A known defect of the reference: its number and what tells its kernels."""

    number: str
    check: Rule


def _half_zero_output(k: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """Interwave weight gradients with several waves in m x n: the reference documents wrong results."""
    concerned = (
        k.variant == "bwd_weight"
        and k.scheduler == "interwave"
        and k.pipeline in ("compv1", "basic_v1", "mem")
        and k.specialization == "default"
        and k.dtype != "fp32"
        and k.wave_m * k.wave_n > 1
    )
    if not concerned:
        return ""
    return f"interwave {k.pipeline} with {k.wave_m}x{k.wave_n} waves leaves half of dW zero where K a group is small"


def _async_layout(k: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """The asynchronous load of basic_async_v1 is laid out for two waves along n and warp tiles of n = 16."""
    if k.pipeline != "basic_async_v1" or (k.wave_n, k.warp_tile_n) == (ASYNC_WAVES_N, ASYNC_WARP_N):
        return ""
    return (
        f"basic_async_v1 wants {ASYNC_WAVES_N} waves along n and warp tile n = {ASYNC_WARP_N}; "
        f"these are {k.wave_n} and {k.warp_tile_n}"
    )


def _streamk_async_fp32(k: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    wrong = k.streamk != "none" and k.pipeline == "basic_async_v1" and k.dtype == "fp32"
    return "stream-K with basic_async_v1 does not exist for fp32" if wrong else ""


def _narrow_warp_tile(k: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    shape = (k.warp_tile_m, k.warp_tile_n)
    return f"warp tiles of {shape[0]}x{shape[1]} are excluded for convolutions" if shape in NARROW_WARP_TILES else ""


DEFECTS: dict[str, Defect] = {
    "half_zero_output": Defect("B7", _half_zero_output),
    "streamk_async_fp32": Defect("B8", _streamk_async_fp32),
    "async_layout": Defect("B8", _async_layout),
    "narrow_warp_tile": Defect("B16", _narrow_warp_tile),
}
PIPELINE_REPLACED = "pipeline_replaced"
"""Flag of a kernel of an instance file that asks for another pipeline (B26)."""
DEPTHWISE_FAULT = "depthwise_fault"
NAMES = (*DEFECTS, PIPELINE_REPLACED, DEPTHWISE_FAULT, *validity.RULES)
"""Every flag that there is."""


def of(kernel: KernelConfig | DepthwiseConfig, arch: str, specs: ArchSpecs) -> tuple[Flag, ...]:
    """Every flag of the kernel on an arch; none means that it is built."""
    if isinstance(kernel, DepthwiseConfig):
        reason = depthwise.fault(kernel)
        return (Flag(DEPTHWISE_FAULT, reason),) if reason else ()
    rules = {name: defect.check for name, defect in DEFECTS.items()} | validity.RULES
    reasons = ((name, rule(kernel, arch, specs)) for name, rule in rules.items())
    return tuple(Flag(name, reason) for name, reason in reasons if reason)


def first_defect(kernel: KernelConfig, arch: str, specs: ArchSpecs, included: Collection[str]) -> tuple[str, str]:
    """(flag, reason) of the first known defect that is not asked for, or two empty strings."""
    rules = {name: defect.check for name, defect in DEFECTS.items() if not {name, ALL} & set(included)}
    return first_of(rules, kernel, arch, specs)


def is_asked(name: str, included: Collection[str]) -> bool:
    """Whether the workflow builds kernels with a flag: no kernel that breaks a rule, whatever is asked for."""
    return name not in validity.RULES and bool({name, ALL} & set(included))


def check_names(names: Collection[str]) -> None:
    """Refuse a flag that there is not."""
    unknown = sorted(set(names) - {ALL, *NAMES})
    if unknown:
        raise UserError(f"unknown flag {unknown[0]!r}; use {ALL} or some of {', '.join(NAMES)}")
