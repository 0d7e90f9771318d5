"""Kernels compiled one by one and executed on the emulated GPU."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tileseer.compile import compiler, registry, trees
from tileseer.compile.build import units
from tileseer.compile.libraries import Libraries
from tileseer.core.errors import UserError
from tileseer.families.gemm_kernel import GemmKernel
from tileseer.families.registry import of_arch
from tileseer.gpu.hardware import Hardware
from tileseer.settings.compile import CkSettings
from tileseer.verdicts.execution import Verdict, verdict


@dataclass(frozen=True)
class Workshop:
    """Where kernels are written and compiled; it goes to other processes."""

    arch: str
    api: Path
    templates: Path
    native: Path
    gpu: Hardware
    settings: dict[str, dict[str, object]]
    most: int = 0
    """Problems that are executed of a kernel; 0: all."""

    def libraries(self) -> Libraries:
        """What compiles for this arch; ``UserError`` where this machine cannot."""
        return Libraries(*registry.parts(self.settings, self.arch, self.native))

    def verdict(self, kernel: GemmKernel) -> Verdict:
        """Compile one kernel and execute it."""
        level = trees.ck_level(CkSettings.of(self.settings, "ck"), self.api, compiles=True)
        texts = of_arch(self.arch).part("emit").files([kernel], self.arch, self.templates, self.api, level)
        unit = units([kernel], {name: text.encode() for name, text in texts.items()}, self.arch, str(self.templates))[0]
        if unit.lack:
            return Verdict(kernel.name, "unsupported", said=unit.lack)
        libraries = self.libraries()
        try:
            module = libraries.module([unit])
        except UserError as error:
            return Verdict(kernel.name, "compile_error", said=" ".join(str(error).split())[:300])
        with compiler.workspace({"driver.so": libraries.emulated_driver(), "module.so": module}) as folder:
            return verdict(libraries, unit, (folder / "driver.so", folder / "module.so"), self.gpu, self.most)


def verdicts(workshop: Workshop, kernels: Sequence[GemmKernel], jobs: int) -> Iterator[Verdict]:
    """Verdicts in the order of the kernels, made by several processes; those that are known come from the cache."""
    workshop.libraries()
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        yield from pool.map(workshop.verdict, kernels)
