"""Instructions of AMD kernels, from the assembly that LLVM writes, and the cycles that they take."""

import re
from collections import Counter
from collections.abc import Mapping

from tileseer.gpus.hardware import Hardware

KINDS = (
    ("mfma", re.compile(r"v_s?(mfmac?|wmmac?)_")),
    ("valu", re.compile(r"v_")),
    ("buffer_loads", re.compile(r"(buffer|global|flat)_load")),
    ("buffer_stores", re.compile(r"(buffer|global|flat)_(store|atomic)")),
    ("lds_reads", re.compile(r"ds_(read|load)")),
    ("lds_writes", re.compile(r"ds_(write|store)")),
    ("barriers", re.compile(r"s_barrier")),
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


def listings(assembly: str) -> dict[str, Counter[str]]:
    """Opcodes of the functions of an assembly listing with their counts, by symbol; a loop counts once."""
    functions: dict[str, Counter[str]] = {}
    opcodes: Counter[str] = Counter()
    for line in assembly.splitlines():
        if _END.match(line):
            opcodes = Counter()
        elif match := _LABEL.match(line):
            opcodes = functions.setdefault(match[1], Counter())
        elif match := _INSTRUCTION.match(line):
            opcodes[match[1]] += 1
    return functions


def kind_of(opcode: str) -> str:
    """Kind of an instruction; empty if it is of none."""
    return next((kind for kind, pattern in KINDS if pattern.match(opcode)), "")


def count_kinds(opcodes: Mapping[str, int]) -> dict[str, int]:
    """How many instructions of each kind there are."""
    counts = dict.fromkeys((kind for kind, _ in KINDS), 0)
    for opcode, count in opcodes.items():
        if kind := kind_of(opcode):
            counts[kind] += count
    return counts


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
