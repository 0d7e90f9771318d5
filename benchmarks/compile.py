#!/usr/bin/env python3
"""How many kernels a CPU-hour compiles: one an invocation with the reference's flags, ours, and ours from the cache.

The same kernels on the same machine. The reference compiles host and device to an object and links it
(docs of its benchmark chain); ours compiles several kernels a unit, the device pass alone. With --record the figures
are kept as they come, and a run that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from tileseer.compile import compiler, flags
from tileseer.compile.base import CompileUnit
from tileseer.compile.hipcc import HipccToolchain
from tileseer.compile.source_trees import HeaderTree
from tileseer.config.compile import CompileSettings
from tileseer.core.cache import Cache
from tileseer.core.yaml_files import read_yaml
from tileseer.gpus import hardware
from tileseer.kernels.ck_tile import api as ck_api
from tileseer.kernels.ck_tile.emit import CkTileEmitter
from tileseer.kernels.ck_tile.kernel import parse
from tileseer.kernels.libraries import tree_of_toolchain

API = Path("config/ck_api.yaml")


def main() -> None:
    """Measure the three ways and print CPU seconds and kernels a CPU-hour as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--matrix", type=Path, default=Path("config/compile_matrix.yaml"))
    parser.add_argument("--kinds", default="forward", help="beginning of the kinds to take")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--alone", type=int, default=10, help="how many of them to compile one an invocation")
    parser.add_argument("--arch", default="gfx950")
    parser.add_argument("--compiler")
    parser.add_argument("--ck")
    parser.add_argument("--record", type=Path, help="figures of earlier runs with the same options (JSON), extended")
    parser.add_argument("--steps", type=int, default=1000, help="end after so many figures, with --record")
    args = parser.parse_args()

    settings = CompileSettings(toolchain="hipcc", compiler=args.compiler, timeout_seconds=900, batch=args.count)
    tree, found = tree_of_toolchain("hipcc").find(args.ck), compiler.find_compiler(settings)
    level = ck_api.detect_level(API, tree)
    api, emitter = ck_api.read_api(API, level), CkTileEmitter(Path("workflow/templates"), API, level)
    kinds = read_yaml(args.matrix)["kernels"]
    kernels = [parse(stem) for kind, stem in kinds.items() if kind.startswith(args.kinds)]
    kernels = [kernel for kernel in kernels if not api.lack(kernel, args.arch)][: args.count]
    units = [CompileUnit(kernel, args.arch, emitter.header(kernel, args.arch).encode()) for kernel in kernels]
    gpu = next(row for row in hardware.read_products("config/hardware.yaml").values() if row.arch == args.arch)
    figures: dict[str, Any] = json.loads(args.record.read_text()) if args.record and args.record.exists() else {}
    for unit in units[: args.alone]:
        if unit.kernel.name not in figures:
            text = emitter.kernel_files(unit.kernel, args.arch)[f"{unit.kernel.name}.cpp"]
            figures[unit.kernel.name] = _reference(unit, text, found, tree, settings)
            if _ends(args, figures):
                return
    if "ours" not in figures:
        with tempfile.TemporaryDirectory() as folder:
            cold, statuses = _ours(units, found, tree, settings, gpu, Path(folder))
            warm, again = _ours(units, found, tree, settings, gpu, Path(folder))
        assert statuses == again
        figures["ours"] = {"cold": cold, "warm": warm, "statuses": sorted(statuses)}
        _ends(args, figures)
    alone = [figures[unit.kernel.name] for unit in units[: args.alone]]
    cold, warm = figures["ours"]["cold"], figures["ours"]["warm"]
    reference = sum(alone) / len(alone)
    result = {
        "kernels": len(units),
        "statuses": figures["ours"]["statuses"],
        "one an invocation, CPU s a kernel": [round(value, 1) for value in alone],
        "ours, CPU s a kernel": round(cold / len(units), 2),
        "ours from the cache, CPU s a kernel": round(warm / len(units), 5),
        "kernels a CPU-hour": {
            "one an invocation": round(3600 / reference, 1),
            "ours": round(3600 * len(units) / cold, 1),
            "ours from the cache": round(3600 * len(units) / warm),
        },
        "times more, ours": round(reference * len(units) / cold, 2),
        "times more, from the cache": round(reference * len(units) / warm),
    }
    print(json.dumps(result, indent=2))


def _ends(args: argparse.Namespace, figures: dict[str, Any]) -> bool:
    """Keep the figures, if there is a record, and return whether this run has made its number of them."""
    if not args.record:
        return False
    args.record.write_text(json.dumps(figures, indent=2, sort_keys=True))
    args.steps -= 1
    return args.steps <= 0


def _reference(unit: CompileUnit, text: str, found, tree: Path, settings: CompileSettings) -> float:
    """Return the CPU seconds of compiling and linking one kernel as the reference does."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, stem = Path(temporary), unit.kernel.name
        (folder / f"{stem}.hpp").write_bytes(unit.header)
        (folder / f"{stem}.cpp").write_text(text)
        target = f"--offload-arch={unit.arch}"
        steps = (
            [*flags.HIPCC_FLAGS, "-c", "-I", str(tree / "include"), "-I", ".", target, f"{stem}.cpp", "-o", "kernel.o"],
            ["-shared", "-fPIC", target, "--hip-link", "-x", "none", "kernel.o", "-o", "kernel.so"],
        )
        seconds = 0.0
        for step in steps:
            run = found.run(step, folder, settings.timeout_seconds, settings.memory_mib)
            if run.outcome != "ok":
                raise SystemExit(f"{stem}: {run.outcome}\n{run.log[-3000:]}")
            seconds += run.seconds
        return seconds


def _ours(units, found, tree: Path, settings: CompileSettings, gpu, folder: Path) -> tuple[float, list[str]]:
    """Return the CPU seconds of the toolchain and its compilers for all units, and the statuses."""
    begin = time.process_time() + _children()
    toolchain = HipccToolchain(
        found, HeaderTree(tree / "include"), settings, Cache(folder, 1 << 30), Path("workflow/native"), gpu
    )
    statuses = [result.status for result in toolchain.compile(units)]
    return time.process_time() + _children() - begin, statuses


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
