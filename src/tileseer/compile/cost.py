"""What compiling costs: an estimate before the first job of a run, and what it took."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from tileseer.configs import plan, stage
from tileseer.conv.operation import Operation
from tileseer.gpu.arch import ArchSpecs
from tileseer.settings.config import Config

ESTIMATED_BYTES = 8_000
ESTIMATED_SECONDS = 5.0
"""Of a kernel that was not compiled: machine code and CPU time, means of 393 CK Tile kernels for gfx950, ten a unit."""


def estimate(kernels: int, units: int) -> str:
    """What so many kernels will take."""
    spent = _amounts(ESTIMATED_SECONDS * kernels, ESTIMATED_BYTES * kernels)
    return f"{kernels:,} kernels in {units:,} units, estimated {spent[0]} and {spent[1]}"


def took(seconds: float, code_bytes: int) -> str:
    """What builds took."""
    hours, size = _amounts(seconds, code_bytes)
    return f"{hours} and made {size}"


def _amounts(seconds: float, code_bytes: int) -> tuple[str, str]:
    return f"{seconds / 3600:.2g} CPU hours", f"{code_bytes / 1e6:.1f} MB of machine code"


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
