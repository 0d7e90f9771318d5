from pathlib import Path

from tileseer.core.script import Settings, stage_script


@stage_script
def main(
    arch: str, operation: str, arch_specs: Path, tables: Path, kernels: Path, rejected: Path, settings: Settings,
) -> str:  # fmt: skip
    """Enumerate the kernels of one arch and operation: one Parquet row a kernel.

    rejected: refused combinations (TSV)
    tables: folder of the named rule sets (config/rule_sets)
    """
    from tileseer.core import parquet
    from tileseer.core.atomic import write_text
    from tileseer.facts.arch import ArchSpecs
    from tileseer.facts.compile import CkSettings
    from tileseer.facts.inputs import ConfigsSettings
    from tileseer.libraries import kernel_table
    from tileseer.libraries.enumeration import rejected_text
    from tileseer.libraries.rule_sets import RuleSet
    from tileseer.problems.operation import Operation

    configs = ConfigsSettings.of(settings, "configs")
    rule_set = RuleSet(configs.rule_set, tables, CkSettings.of(settings, "ck").root, ArchSpecs.load(arch_specs))
    enumeration = rule_set.enumerate_kernels(arch, Operation.parse(operation), configs)
    rows = kernel_table.tabulate_kernels(enumeration.kernels, enumeration.split_k, configs.chunks)
    parquet.write_table(rows, kernels)
    write_text(rejected, rejected_text(enumeration.rejected))
    refused, said = len(enumeration.rejected), [f"{len(enumeration.kernels):,} kernels"]
    if refused:
        said.append(f"{refused:,} combinations refused, see {rejected}")
    if unused := enumeration.unused_tiles:
        why = f", since {unused[0][1]}" if len(unused) == 1 else ""
        said.append(f"none has the tile {' or '.join(tile for tile, _ in unused)}{why}")
    return "; ".join(said)
