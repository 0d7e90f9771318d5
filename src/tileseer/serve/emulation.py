"""Kernels by name, emitted and compiled one by one and executed on the emulated GPU."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tileseer.build import registration
from tileseer.build import source_trees as trees
from tileseer.build.build import compile_units
from tileseer.build.modules import Libraries
from tileseer.facts.compile import CkSettings
from tileseer.facts.hardware import Hardware
from tileseer.libraries.ck_tile.emit import CkTileEmitter
from tileseer.libraries.gemm_kernel import GemmKernel
from tileseer.measure.emulated_kernels import Emulation, KernelVerdict


@dataclass(frozen=True)
class Workshop:
    """Where kernels are emitted and compiled; it goes to other processes."""

    arch: str
    api: Path
    templates: Path
    native: Path
    gpu: Hardware
    settings: dict[str, dict[str, object]]
    few: bool = False
    """As ``Emulation.few``."""

    def libraries(self) -> Libraries:
        """Return what compiles for this arch; ``UserError`` where this machine cannot."""
        return Libraries(*registration.builder_parts(self.settings, self.arch, self.native))

    def execute(self, kernel: GemmKernel) -> KernelVerdict:
        """Compile one kernel and execute it."""
        level = trees.ck_level(CkSettings.of(self.settings, "ck"), self.api, compiles=True)
        texts = CkTileEmitter(self.templates, self.api, level).files([kernel], self.arch)
        unit = compile_units(
            [kernel], {name: text.encode() for name, text in texts.items()}, self.arch, str(self.templates)
        )[0]
        if unit.lack:
            return KernelVerdict(kernel.name, "unsupported", said=unit.lack)
        (verdict,) = Emulation(self.libraries(), self.gpu, self.few).build_and_execute([unit])
        return verdict


def verdicts(workshop: Workshop, kernels: Sequence[GemmKernel], jobs: int) -> Iterator[KernelVerdict]:
    """Yield the verdicts in the order of the kernels, made by several processes; earlier ones come from the cache."""
    workshop.libraries()
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        yield from pool.map(workshop.execute, kernels)
