"""What compiling will cost in all, before the first job of a run. No stage imports it: it enumerates the kernels."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from tileseer.compile.cost import estimate
from tileseer.configs import plan, stage
from tileseer.conv.operation import Operation
from tileseer.gpu.arch import ArchSpecs
from tileseer.settings.config import Config


def of_run(jobs: Iterable[Mapping[str, str]], tables: Path, settings: Config) -> str:
    """What the compile jobs of a run, each an arch, an operation and a chunk, take at most.

    What the cache holds costs nothing; which kernels these are, only the jobs know.
    """
    chunks: dict[tuple[str, str], set[int]] = defaultdict(set)
    for job in jobs:
        chunks[job["arch"], job["operation"]].add(int(job["chunk"]))
    specs = ArchSpecs.load(Path(settings.arch_specs))
    sizes: list[int] = []
    for (arch, operation), wanted in sorted(chunks.items()):
        found = stage.enumerated(arch, Operation.parse(operation), specs, tables, settings.configs, settings.ck.root)
        held = Counter(plan.chunk_of(kernel.name, settings.configs.chunks) for kernel in found.kernels)
        sizes += [held[chunk] for chunk in wanted]
    units = sum(-(-size // settings.compile.batch) for size in sizes)
    return f"compile: at most {estimate(sum(sizes), units)}; what the cache holds is not compiled"
