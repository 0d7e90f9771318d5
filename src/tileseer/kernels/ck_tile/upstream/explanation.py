"""Every rule that a kernel meets, with pass or fail and the reason: ours, the reference's, and what a build does."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tileseer.gpus.arch import ArchSpecs
from tileseer.kernels.ck_tile import api, emit, flags, legality, names
from tileseer.kernels.ck_tile.depthwise import DepthwiseConfig
from tileseer.kernels.ck_tile.kernel import KernelConfig
from tileseer.kernels.ck_tile.upstream import reference_filter
from tileseer.kernels.ck_tile.upstream.named import list_kernels
from tileseer.kernels.rules import broken_rules

LEGAL, KNOWN_DEFECTS, EMISSION = "legality", "known defects", "emission"
ENUMERATION, ARCH_FILTER, BUILD = "reference enumeration", "reference filter", "build"
kernel_of = names.parse
LEVELS = api.LEVELS
"""Of the CK Tile API, the newest first."""


@dataclass(frozen=True)
class RuleVerdict:
    """What one rule of a group says; ``reason`` is empty where it passes and has nothing to add."""

    group: str
    rule: str
    passed: bool
    reason: str


def explain(
    kernel: KernelConfig | DepthwiseConfig, arch: str, specs: ArchSpecs, api_table: Path, level: str = api.NEWEST
) -> list[RuleVerdict]:
    """Verdict of every rule on ``arch``; the last one is whether a build for a level of the API has the kernel."""
    specs.arch(arch)
    (listed,) = list_kernels([kernel], arch, specs)
    found = listed.flags
    if isinstance(kernel, KernelConfig):
        verdicts = list(_gemm(kernel, arch, specs))
    else:
        skipped = "the reference's filter does not look at depthwise kernels"
        verdicts = [_verdict(LEGAL, flags.DEPTHWISE_FAULT, found[0].reason if found else "")]
        verdicts.append(RuleVerdict(ARCH_FILTER, "not_looked_at", True, skipped))
    names = api.read_api(api_table, level)
    form = emit.form_fault(kernel, names)
    fault = form or names.lack(kernel, arch)
    verdicts.append(RuleVerdict(EMISSION, "has_a_form", not form, form))
    verdicts.append(RuleVerdict(EMISSION, "unsupported_by_ck", not fault, f"CK Tile {level}: {fault}" if fault else ""))
    reason = f"flags {', '.join(flag.name for flag in found)}: built only if they are asked for" if found else fault
    return [*verdicts, RuleVerdict(BUILD, "is_built", not reason, reason)]


def _gemm(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> Iterator[RuleVerdict]:
    columns = reference_filter.filter_columns([kernel], arch, specs)
    numbered = [replace(rule, name=f"{rule.name} ({flags.NUMBERS[rule.name]})") for rule in flags.DEFECTS]
    for group, rules in (
        (LEGAL, legality.LEGALITY),
        (KNOWN_DEFECTS, numbered),
        (ENUMERATION, reference_filter.CONFIG_RULES),
        (ARCH_FILTER, reference_filter.ARCH_RULES),
    ):
        reasons = dict(broken_rules(rules, columns)[0])
        for rule in rules:
            yield _verdict(group, rule.name, reasons.get(rule.name, ""))


def _verdict(group: str, rule: str, reason: str) -> RuleVerdict:
    return RuleVerdict(group, rule, not reason, reason)
