"""Instructions of AMD kernels, from the assembly that LLVM writes: of the whole code, and of the main loop.

LLVM's comments say in which innermost loop each block of code lies. The main loop of a kernel is the one with the most
matrix instructions. Static cycles are what a k-step's instructions take of a compute unit if nothing ever waits.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from tileseer.gpus.hardware import Hardware
from tileseer.kernels.gemm_kernel import GemmKernel

KINDS = (
    ("mfma", re.compile(r"v_s?(mfmac?|wmmac?)_")),
    ("valu", re.compile(r"v_")),
    ("buffer_loads", re.compile(r"(buffer|global|flat)_load")),
    ("buffer_stores", re.compile(r"(buffer|global|flat)_(store|atomic)")),
    ("lds_reads", re.compile(r"ds_(read|load)")),
    ("lds_writes", re.compile(r"ds_(write|store)")),
    ("scratch", re.compile(r"scratch_")),
    ("barriers", re.compile(r"s_barrier")),
    ("waits", re.compile(r"s_wait")),
    ("salu", re.compile(r"s_")),
)
"""Kinds of instructions: the first pattern that an opcode begins with. Loads go to registers or to LDS."""
_QUARTER_RATE = re.compile(r"v_(mul_(hi|lo)_|mad_[iu]64_|(rcp|rsq|sqrt|exp|log|sin|cos)_)")
_VALU_CYCLES, _QUARTER_RATE_CYCLES = 4, 16
"""Of a SIMD for the 64 lanes of a wave."""
_MATRIX = re.compile(r"_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)_?(?:(?P<blocks>\d+)b_)?(?P<type>[a-z]+\d+)")
_LDS_ACCESS = re.compile(r"(?P<two>2(?:st64)?_)?[biu](?P<bits>\d+)")

_LABEL = re.compile(r"(?!\.L)([\w.$]+):")
_INSTRUCTION = re.compile(r"\t([a-z]\w*)\b")
_END = re.compile(r"\.Lfunc_end")
_BLOCK = re.compile(r"\.L(BB\w+):|; %bb\.\d+:")
_IN_LOOP = re.compile(r"; +in Loop: Header=(\w+)")
_LOOP_HEADER = re.compile(r"; *=>.*Loop Header")


@dataclass(frozen=True)
class Listing:
    """Opcodes of a function with their counts."""

    code: dict[str, int]
    loop: dict[str, int]
    """Those of the main loop; empty if no loop has a matrix instruction."""


def listings(assembly: str) -> dict[str, Listing]:
    """Instructions of the functions of an assembly listing, by symbol."""
    functions: dict[str, defaultdict[str, Counter[str]]] = {}
    loops: defaultdict[str, Counter[str]] | None = None
    block = loop = ""
    for line in assembly.splitlines():
        if match := _BLOCK.match(line):
            block, loop = match[1] or "", ""
        elif _END.match(line):
            loops = None
        elif match := _LABEL.match(line):
            loops, loop = functions.setdefault(match[1], defaultdict(Counter)), ""
        elif loops is not None and (match := _INSTRUCTION.match(line)):
            loops[loop][match[1]] += 1
        if match := _IN_LOOP.search(line):
            loop = match[1]
        elif _LOOP_HEADER.search(line):
            loop = block
    return {symbol: _listing(loops) for symbol, loops in functions.items()}


def _listing(loops: Mapping[str, Counter[str]]) -> Listing:
    main = max((opcodes for loop, opcodes in loops.items() if loop), key=_matrix_count, default=Counter())
    return Listing(dict(sum(loops.values(), Counter())), dict(main) if _matrix_count(main) else {})


def _matrix_count(opcodes: Mapping[str, int]) -> int:
    return of_kinds(opcodes)["mfma"]


def kind_of(opcode: str) -> str:
    """Kind of an instruction; empty if it is of none."""
    return next((kind for kind, pattern in KINDS if pattern.match(opcode)), "")


def of_kinds(opcodes: Mapping[str, int]) -> dict[str, int]:
    """How many instructions of each kind there are."""
    counts = dict.fromkeys((kind for kind, _ in KINDS), 0)
    for opcode, count in opcodes.items():
        if kind := kind_of(opcode):
            counts[kind] += count
    return counts


def matrix_shapes(opcodes: Mapping[str, int]) -> str:
    """The matrix instructions with their counts, as ``16 v_mfma_f32_16x16x32_bf16``."""
    return ", ".join(f"{count} {opcode}" for opcode, count in sorted(opcodes.items()) if kind_of(opcode) == "mfma")


def step_cycles(loop: Mapping[str, int], kernel: GemmKernel, gpu: Hardware) -> dict[str, float]:
    """Cycles of a compute unit for a k-step of a block: of its VALU, matrix and LDS instructions, float by kind.

    ``k_steps``: how many of them a pass through the main loop makes, its FLOP over those of a step.
    """
    flop = sum(count * _flop(opcode) for opcode, count in loop.items() if kind_of(opcode) == "mfma")
    waves = kernel.wave_m * kernel.wave_n * kernel.wave_k
    steps = waves * flop / (2 * kernel.tile_m * kernel.tile_n * kernel.tile_k)
    return {"k_steps": steps} | {kind: cycles * (waves / steps) for kind, cycles in unit_cycles(loop, gpu).items()}


def unit_cycles(opcodes: Mapping[str, int], gpu: Hardware) -> dict[str, float]:
    """Cycles that a wave's VALU, matrix and LDS instructions take of a compute unit if nothing ever waits, by kind."""
    matrix = valu = lds = 0.0
    for opcode, count in opcodes.items():
        kind = kind_of(opcode)
        if kind == "mfma":
            matrix += count * _flop(opcode) / _flop_per_cycle(opcode, gpu)
        elif kind == "valu":
            valu += count * (_QUARTER_RATE_CYCLES if _QUARTER_RATE.match(opcode) else _VALU_CYCLES)
        elif kind in ("lds_reads", "lds_writes"):
            lds += count * _lds_bytes(opcode) * gpu.wave_size / gpu.lds_bytes_per_clock
    return {"valu": valu / gpu.simds_per_cu, "mfma": matrix, "lds": lds}


def _flop(opcode: str) -> int:
    of = _shape(opcode)
    return 2 * int(of["m"]) * int(of["n"]) * int(of["k"]) * int(of["blocks"] or 1)


def _flop_per_cycle(opcode: str, gpu: Hardware) -> float:
    """Of a compute unit; among 16-bit instructions, the longest of each tile have the full rate."""
    of = _shape(opcode)
    if of["type"] in ("f32", "xf32"):
        return gpu.matrix_flops_fp32
    longest = 16 if int(of["m"]) >= 32 else 32
    return gpu.matrix_flops_16bit * (1.0 if int(of["k"]) >= longest else gpu.short_k_rate)


def _shape(opcode: str) -> re.Match[str]:
    match = _MATRIX.search(opcode)
    if match is None:
        raise ValueError(f"{opcode}: a matrix instruction without a shape")
    return match


def _lds_bytes(opcode: str) -> float:
    """Bytes of a lane."""
    match = _LDS_ACCESS.search(opcode)
    if match is None:
        raise ValueError(f"{opcode}: an LDS access without a size")
    return int(match["bits"]) / 8 * (2 if match["two"] else 1)
