"""The real hipcc with a tree of Composable Kernel, as this machine has them; what it builds is kept in the cache.

Where there is no compiler the tests are skipped, except under TILESEER_NEEDS_HIPCC (as .ci/run sets it).
"""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from repository import ROOT

from tileseer.build import compiler
from tileseer.build.base import CompileUnit
from tileseer.build.hipcc import HipccToolchain
from tileseer.build.modules import Libraries
from tileseer.build.source_trees import HeaderTree, tree_of
from tileseer.core.cache import Cache, default_folder
from tileseer.core.errors import UserError
from tileseer.facts import hardware
from tileseer.facts.compile import CompileSettings
from tileseer.libraries.ck_tile import api
from tileseer.libraries.ck_tile.emit import CkTileEmitter
from tileseer.libraries.ck_tile.kernel import parse

API = ROOT / "config/ck_api.yaml"
SETTINGS = CompileSettings(toolchain="hipcc", timeout_seconds=900)


@dataclass(frozen=True)
class RealHipcc:
    compiler: compiler.Compiler
    tree: HeaderTree
    level: str
    cache = Cache(default_folder(), 20 << 30)

    @property
    def parts(self):
        return self.compiler, self.tree, SETTINGS, self.cache, ROOT / "workflow/native"

    @property
    def libraries(self) -> Libraries:
        return Libraries(*self.parts)

    @property
    def emitter(self) -> CkTileEmitter:
        return CkTileEmitter(ROOT / "workflow/templates", API, self.level)

    def toolchain(self, arch: str) -> HipccToolchain:
        return HipccToolchain(*self.parts, hardware.product_of_arch(ROOT / "config/hardware.yaml", arch))

    def units(self, names, arch="gfx950") -> list[CompileUnit]:
        kernels = [parse(name) for name in names]
        return [CompileUnit(kernel, arch, self.emitter.header(kernel, arch).encode()) for kernel in kernels]

    def load(self, folder: Path, names, arch="gfx950") -> tuple[Path, Path]:
        """Driver of the emulated GPU and module of some kernels, as files."""
        paths = folder / "driver.so", folder / "module.so"
        contents = self.libraries.emulated_driver(), self.libraries.module(self.units(names, arch))
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        return paths


@pytest.fixture(scope="session")
def hip() -> RealHipcc:
    try:
        tree = tree_of("hipcc", {"ck": None})
        return RealHipcc(compiler.find_compiler(SETTINGS), tree, api.detect_level(API, tree.include.parent))
    except UserError as error:
        if "TILESEER_NEEDS_HIPCC" in os.environ:
            raise
        pytest.skip(str(error))
