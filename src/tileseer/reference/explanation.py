"""Every rule that a kernel meets, with pass or fail and the reason: ours, the reference's, and what a build does."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tileseer.families.ck_tile import api, emit, flags, names, validity
from tileseer.families.ck_tile.depthwise import DepthwiseConfig
from tileseer.families.ck_tile.kernel import KernelConfig
from tileseer.gpu.arch import ArchSpecs
from tileseer.reference import reference_filter

VALIDITY, KNOWN_DEFECTS, EMISSION = "validity", "known defects", "emission"
ENUMERATION, ARCH_FILTER, BUILD = "reference enumeration", "reference filter", "build"
kernel_of = names.parse
LEVELS = api.LEVELS
"""Of the CK Tile API, the newest first."""


@dataclass(frozen=True)
class Verdict:
    """What one rule of a group says; ``reason`` is empty where it passes and has nothing to add."""

    group: str
    rule: str
    passed: bool
    reason: str


def explain(
    kernel: KernelConfig | DepthwiseConfig, arch: str, specs: ArchSpecs, api_table: Path, level: str = api.NEWEST
) -> list[Verdict]:
    """Verdict of every rule on ``arch``; the last one is whether a build for a level of the API has the kernel."""
    specs.arch(arch)
    found = flags.of(kernel, arch, specs)
    if isinstance(kernel, KernelConfig):
        verdicts = list(_gemm(kernel, arch, specs))
    else:
        skipped = "the reference's filter does not look at depthwise kernels"
        verdicts = [_verdict(VALIDITY, flags.DEPTHWISE_FAULT, found[0].reason if found else "")]
        verdicts.append(Verdict(ARCH_FILTER, "not_looked_at", True, skipped))
    names = api.load(api_table, level)
    form = emit.form_fault(kernel, names)
    fault = form or names.lack(kernel, arch)
    verdicts.append(Verdict(EMISSION, "has_a_form", not form, form))
    verdicts.append(Verdict(EMISSION, "unsupported_by_ck", not fault, f"CK Tile {level}: {fault}" if fault else ""))
    reason = f"flags {', '.join(flag.name for flag in found)}: built only if they are asked for" if found else fault
    return [*verdicts, Verdict(BUILD, "is_built", not reason, reason)]


def _gemm(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> Iterator[Verdict]:
    for group, rules in (
        (VALIDITY, validity.RULES),
        (KNOWN_DEFECTS, {f"{name} ({defect.number})": defect.check for name, defect in flags.DEFECTS.items()}),
        (ENUMERATION, reference_filter.CONFIG_RULES),
        (ARCH_FILTER, reference_filter.ARCH_RULES),
    ):
        for name, rule in rules.items():
            yield _verdict(group, name, rule(kernel, arch, specs))


def _verdict(group: str, rule: str, reason: str) -> Verdict:
    return Verdict(group, rule, not reason, reason)
