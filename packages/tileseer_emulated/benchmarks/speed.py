#!/usr/bin/env python3
"""How many instructions of waves the emulated GPU executes in a CPU second, with its check of races and memory.

Each kernel is compiled (or comes from the cache) and executes its tiny problems; a kernel's first launch decodes
it. Host code, reference and comparison are not counted.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from amdgpu_emulator import decoder
from tileseer.build import registration
from tileseer.build import source_trees as trees
from tileseer.build.base import CompileUnit
from tileseer.build.modules import Libraries
from tileseer.facts.benchmark import Timing
from tileseer.facts.compile import CkSettings
from tileseer.libraries.ck_tile.emit import CkTileEmitter
from tileseer.libraries.ck_tile.kernel import parse
from tileseer.measure.harness import abi
from tileseer.measure.harness.supervisor import launch_options, problem_numbers
from tileseer_emulated.driver import EmulatedDriver
from tileseer_emulated.kernels import chosen_problems, supported_problems
from tileseer_emulated.tiny_problems import TinyProblem, tiny_problems

API, NATIVE, TEMPLATES = Path("config/ck_api.yaml"), Path("workflow/native"), Path("workflow/templates")
WIDE = "nhwgc_2d_compv3_cshuffle_intrawave_64x64x64_2x2x1_16x16x16"
TALL = "nhwgc_2d_compv3_cshuffle_intrawave_64x64x64_4x1x1_16x16x16"
KERNELS = [
    f"gfx950:grouped_conv_fwd_bf16_{TALL}", f"gfx950:grouped_conv_bwd_weight_bf16_{TALL}_2stage",
    f"gfx942:grouped_conv_fwd_fp16_{WIDE}", f"gfx942:grouped_conv_bwd_data_bf16_{WIDE}",
]  # fmt: skip


def built(arch: str, names: list[str]) -> tuple[bytes, bytes]:
    """Driver of the emulated GPU and module of some kernels."""
    settings = {"compile": {"toolchain": "hipcc"}, "ck": {}, "cache": {}}
    libraries = Libraries(*registration.builder_parts(settings, arch, NATIVE))
    emitter = CkTileEmitter(TEMPLATES, API, trees.ck_level(CkSettings(root=None), API, compiles=True))
    kernels = [parse(name) for name in names]
    units = [CompileUnit(kernel, arch, emitter.header(kernel, arch).encode()) for kernel in kernels]
    return libraries.emulated_driver(), libraries.module(units)


def executed(library: abi.DriverLibrary, emulated: EmulatedDriver, name: str) -> tuple[int, float]:
    """Instructions of waves in all problems of a kernel, and the CPU seconds of its launches."""
    launch, spent = type(emulated.gpu).launch, 0.0

    def timed(*words: object, **options: object) -> object:
        nonlocal spent
        start = time.process_time()
        execution = launch(emulated.gpu, *words, **options)
        spent += time.process_time() - start
        return execution

    kernel, index = parse(name), library.find_kernel(name.encode())
    pairs = supported_problems(kernel, tiny_problems(kernel))

    def launches(pair: TinyProblem, **changes: int) -> list[str]:
        emulated.bound.clear()
        numbers = abi.ConvProblem(*problem_numbers(vars(pair.problem), kernel.variant, pair.split_k))
        options = abi.ConvOptions(**(launch_options(Timing()) | changes))
        library.verify(index, ctypes.byref(numbers), ctypes.byref(options), ctypes.byref(abi.ConvCheck()))
        return sorted(emulated.bound)

    emulated.is_dry = True
    chosen = chosen_problems(pairs, [launches(pair, verify_millions=1) for pair in pairs], few=False)
    emulated.is_dry, emulated.gpu.launch = False, timed
    emulated.opcodes.clear()
    for number in chosen:
        launches(pairs[number])
    return emulated.opcodes.total(), spent


def main() -> None:
    """Print a line for each kernel, and one for all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernels", nargs="*", metavar="ARCH:NAME", default=KERNELS)
    pairs = [word.split(":") for word in parser.parse_args().kernels]
    # The library that decodes takes half a second to import, and is not what is measured.
    decoder.decode(bytes(16), 0, "gfx950")
    instructions = seconds = 0.0
    with TemporaryDirectory() as folder:
        driver, emulated = Path(folder, "driver.so"), None
        for arch in dict.fromkeys(arch for arch, _ in pairs):
            names, module = [name for other, name in pairs if other == arch], Path(folder, f"{arch}.so")
            content, kernels = built(arch, names)
            module.write_bytes(kernels)
            if emulated is None:
                driver.write_bytes(content)
                library = abi.DriverLibrary(str(driver))
                emulated = EmulatedDriver(library.handle)
            library.load_module(str(module))
            for name in names:
                count, spent = executed(library, emulated, name)
                instructions, seconds = instructions + count, seconds + spent
                print(f"{count / spent:>9,.0f}/s {count:>9,} instructions  {arch} {name}", flush=True)
    print(f"{instructions / seconds:>9,.0f}/s {instructions:>9,.0f} instructions  all")


if __name__ == "__main__":
    main()
