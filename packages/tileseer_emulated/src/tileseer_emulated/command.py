"""``tileseer verify --emulate``: kernels by name, compiled one by one and executed on the emulated GPU."""

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from tileseer.build import registration
from tileseer.build import source_trees as trees
from tileseer.build.build import compile_units
from tileseer.build.compiler import NATIVE_SOURCES
from tileseer.build.modules import Libraries
from tileseer.cli import options
from tileseer.core import content_hash
from tileseer.core.errors import UserError
from tileseer.core.places import find_file
from tileseer.core.progress import Progress
from tileseer.core.reading import read_utf8
from tileseer.facts import hardware
from tileseer.facts.compile import CkSettings
from tileseer.facts.hardware import Hardware
from tileseer.libraries.ck_tile.emit import CkTileEmitter
from tileseer.libraries.gemm_kernel import GemmKernel
from tileseer.libraries.registry import library_of_arch
from tileseer_emulated.kernels import Emulation, KernelVerdict, coverage_text


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


def verify(args: argparse.Namespace) -> int:
    """Print a line a kernel of a list, executed on the emulated GPU; return 1 if one is not right."""
    names = _list(args.path)
    if args.sample:
        # By the hash of the name: more kernels are the same ones and others.
        names = sorted(sorted(names, key=content_hash.of_name)[: args.sample])
    try:
        kernels = [_executable(name, args.arch) for name in names]
    except UserError as error:
        raise UserError(f"{args.path}: {str(error).splitlines()[0]}") from error
    workshop = Workshop(
        args.arch, find_file(args.config / "ck_api.yaml"), find_file(Path("workflow/templates")),
        find_file(NATIVE_SOURCES),
        hardware.product_of_arch(find_file(args.config / "hardware.yaml"), args.arch),
        {"compile": {"toolchain": library_of_arch(args.arch).toolchain}, "ck": {}, "cache": {}}, args.quick,
    )  # fmt: skip
    found = []
    with Progress("emulate", len(kernels), "kernels") as progress:
        for verdict in verdicts(workshop, kernels, args.jobs):
            found.append(verdict)
            progress.add(failed=int(verdict.status != "ok"))
    failed = sum(verdict.status not in ("ok", "unsupported") for verdict in found)
    lines = [
        f"{v.status:13} {v.kernel}: {v.right} problems right, {v.wrong} not, {v.instructions:,} instructions, "
        f"{v.issue_cycles:,} issue cycles, {coverage_text(v)}" + (f"; {v.said}" if v.said else "")
        for v in found
    ]
    content = {"device": f"emulated {args.arch}", "checks": [asdict(v) for v in found], "failed": failed}
    lines.append(f"{len(found)} kernels executed on an emulated {args.arch}, {failed} failed")
    return options.answer(args, content, lines, failed > 0)


def _list(path: Path) -> list[str]:
    try:
        names = [line.strip() for line in read_utf8(path).splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: no list of kernel names: {error}; write one name a line") from error
    if not names:
        raise UserError(f"{path}: the list is empty; write one kernel name a line")
    return names


def _executable(name: str, arch: str) -> GemmKernel:
    kernel = library_of_arch(arch).kernel.parse(name)
    if not isinstance(kernel, GemmKernel):
        raise UserError(f"{name}: only implicit-GEMM kernels are executed; leave it out of the list")
    if kernel.ndim < 2:
        raise UserError(f"{name}: no problem has one dimension (write it as 2D with Hi=1); leave it out of the list")
    return kernel
