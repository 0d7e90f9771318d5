"""What compiling will cost in all, before the first job of a run. No stage imports it: it enumerates the kernels."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from tileseer.compile.cost import estimate_cost
from tileseer.config.config import Config
from tileseer.gpus.arch import ArchSpecs
from tileseer.kernels.kernel_table import chunk_of
from tileseer.kernels.rule_sets import RuleSet
from tileseer.problems.operation import Operation


def of_run(jobs: Iterable[Mapping[str, str]], tables: Path, settings: Config) -> str:
    """Say what the compile jobs of a run, each an arch, an operation and a chunk, take at most.

    What the cache holds costs nothing; which kernels these are, only the jobs know.
    """
    chunks: dict[tuple[str, str], set[int]] = defaultdict(set)
    for job in jobs:
        chunks[job["arch"], job["operation"]].add(int(job["chunk"]))
    specs = ArchSpecs.load(Path(settings.arch_specs))
    rule_set = RuleSet(settings.configs.rule_set, tables, settings.ck.root, specs)
    sizes: list[int] = []
    for (arch, operation), numbers in sorted(chunks.items()):
        variant = Operation.parse(operation)
        kernels = rule_set.enumerate_kernels(arch, variant, settings.configs).kernels
        held = Counter(chunk_of(kernel.name, settings.configs.chunks) for kernel in kernels)
        sizes += [held[chunk] for chunk in numbers]
    units = sum(-(-size // settings.compile.batch) for size in sizes)
    return f"compile: at most {estimate_cost(sum(sizes), units)}; kernels in the cache are not compiled"
