"""Every rule that a kernel meets, with pass or fail and the reason: ours, the reference's, and what a build does."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tileseer.facts.arch import ArchSpecs
from tileseer.libraries.ck_tile import api, emit, flags
from tileseer.libraries.ck_tile.depthwise import DepthwiseConfig
from tileseer.libraries.ck_tile.kernel import KernelConfig
from tileseer.libraries.ck_tile.rules import RULES
from tileseer.libraries.ck_tile.upstream import reference_filter
from tileseer.libraries.ck_tile.upstream.named import list_kernels
from tileseer.libraries.rules import broken_rules


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
    """Return the verdict of every rule on ``arch``; the last says whether a build for an API level has the kernel."""
    specs.arch(arch)
    (listed,) = list_kernels([kernel], arch, specs)
    if isinstance(kernel, KernelConfig):
        verdicts = list(_gemm(kernel, arch, specs))
    else:
        skipped = "the reference's filter does not look at depthwise kernels"
        fault = listed.flags[0].reason if listed.flags else ""
        verdicts = [RuleVerdict("legality", flags.DEPTHWISE_FAULT, not fault, fault)]
        verdicts.append(RuleVerdict("reference filter", "not_looked_at", True, skipped))
    table = api.read_api(api_table, level)
    form = emit.form_fault(kernel, table)
    lack = form or table.lack(kernel, arch)
    verdicts.append(RuleVerdict("emission", "has_a_form", not form, form))
    verdicts.append(RuleVerdict("emission", "unsupported_by_ck", not lack, f"CK Tile {level}: {lack}" if lack else ""))
    if slices := table.only_one_slice(kernel):
        verdicts.append(RuleVerdict("emission", "split_k", True, f"CK Tile {level}: only split-K 1: {slices}"))
    named = ", ".join(flag.name for flag in listed.flags)
    reason = f"flags {named}: built only on request" if named else lack
    return [*verdicts, RuleVerdict("build", "is_built", not reason, reason)]


def _gemm(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> Iterator[RuleVerdict]:
    parts = reference_filter.filter_parts([kernel], arch, specs)
    groups = {
        "legality": RULES.legality,
        "known defects": flags.DEFECTS,
        "reference enumeration": reference_filter.CONFIG_RULES,
        "reference filter": reference_filter.ARCH_RULES,
    }
    for group, rules in groups.items():
        reasons = dict(broken_rules(rules, parts)[0])
        for rule in rules:
            number = f" ({flags.DEFECT_NUMBERS[rule.name]})" if rules is flags.DEFECTS else ""
            yield RuleVerdict(group, rule.name + number, rule.name not in reasons, reasons.get(rule.name, ""))
