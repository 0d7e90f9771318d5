"""Every rule that a kernel meets, with pass or fail and the reason: ours, the reference's, and what a build does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tileseer.families.ck_tile import depthwise, emit, flags, validity
from tileseer.families.ck_tile.ck_api import CkApi
from tileseer.families.ck_tile.depthwise import DepthwiseConfig
from tileseer.families.ck_tile.kernel import KernelConfig
from tileseer.gpu.arch import ArchSpecs
from tileseer.reference import reference_filter

VALIDITY, KNOWN_DEFECTS, EMISSION = "validity", "known defects", "emission"
ENUMERATION, ARCH_FILTER, BUILD = "reference enumeration", "reference filter", "build"


@dataclass(frozen=True)
class Verdict:
    """What one rule of a group says; ``reason`` is empty where it passes and has nothing to add."""

    group: str
    rule: str
    passed: bool
    reason: str


def explain(kernel: KernelConfig | DepthwiseConfig, arch: str, specs: ArchSpecs, api: CkApi) -> list[Verdict]:
    """Return the verdict of every rule on ``arch``; the last one is whether a build has the kernel."""
    specs.arch(arch)
    verdicts = list(_depthwise(kernel) if isinstance(kernel, DepthwiseConfig) else _gemm(kernel, arch, specs))
    fault = emit.form_fault(kernel, api)
    verdicts.append(Verdict(EMISSION, "has_a_form", not fault, fault))
    found = flags.of(kernel, arch, specs)
    reason = f"flags {', '.join(flag.name for flag in found)}: built only if they are asked for" if found else fault
    return [*verdicts, Verdict(BUILD, "is_built", not reason, reason)]


def _gemm(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> Iterator[Verdict]:
    for rule, passed, reason in validity.explain(kernel, arch, specs):
        yield Verdict(VALIDITY, rule, passed, reason)
    for name, defect in flags.DEFECTS.items():
        reason = defect.check(kernel)
        yield Verdict(KNOWN_DEFECTS, f"{name} ({defect.number})", not reason, reason)
    for rule, config_check in reference_filter.CONFIG_RULES.items():
        reason = config_check(kernel, arch, specs, True)
        yield Verdict(ENUMERATION, rule, not reason, reason)
    for rule, arch_check in reference_filter.ARCH_RULES.items():
        reason = arch_check(kernel, arch, specs)
        yield Verdict(ARCH_FILTER, rule, not reason, reason)


def _depthwise(kernel: DepthwiseConfig) -> Iterator[Verdict]:
    reason = depthwise.fault(kernel)
    yield Verdict(VALIDITY, flags.DEPTHWISE_FAULT, not reason, reason)
    yield Verdict(ARCH_FILTER, "not_looked_at", True, "the reference's filter does not look at depthwise kernels")
