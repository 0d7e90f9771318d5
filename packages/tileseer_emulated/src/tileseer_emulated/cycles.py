"""The cycles that instructions of AMD GPUs take if nothing ever waits."""

import re
from collections.abc import Mapping

from tileseer.build.instructions import kind_of
from tileseer.facts.hardware import Hardware

_QUARTER_RATE = re.compile(r"v_(mul_(hi|lo)_|mad_[iu]64_|(rcp|rsq|sqrt|exp|log|sin|cos)_)")
_VALU_CYCLES, _QUARTER_RATE_CYCLES = 4, 16
"""Of a SIMD for the 64 lanes of a wave."""
_MATRIX = re.compile(r"_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)_?(?:(?P<blocks>\d+)b_)?(?P<type>[a-z]+\d+)")
_LDS_ACCESS = re.compile(r"(?P<two>2(?:st64)?_)?[biu](?P<bits>\d+)")


def unit_cycles(opcodes: Mapping[str, int], gpu: Hardware) -> dict[str, float]:
    """Return the cycles of a compute unit that a wave's VALU, matrix and LDS instructions take if nothing ever waits.

    The keys are ``valu``, ``mfma`` and ``lds``. An opcode whose shape or size cannot be read is a ``ValueError``.
    """
    cycles = {"valu": 0.0, "mfma": 0.0, "lds": 0.0}
    for opcode, count in opcodes.items():
        kind = kind_of(opcode)
        if kind == "valu":
            own = _QUARTER_RATE_CYCLES if _QUARTER_RATE.match(opcode) else _VALU_CYCLES
            cycles["valu"] += count * own / gpu.simds_per_cu
        elif kind == "mfma":
            if not (of := _MATRIX.search(opcode)):
                raise ValueError(f"{opcode}: a matrix instruction without a shape")
            m, n, k, blocks = (int(of[name] or 1) for name in ("m", "n", "k", "blocks"))
            # Among 16-bit instructions, the longest of each tile have the full rate.
            is_short = k < (16 if m >= 32 else 32)
            rate_16bit = gpu.matrix_flops_16bit * (gpu.short_k_rate if is_short else 1.0)
            flop_per_cycle = gpu.matrix_flops_fp32 if of["type"] in ("f32", "xf32") else rate_16bit
            cycles["mfma"] += count * 2 * m * n * k * blocks / flop_per_cycle
        elif kind in ("lds_reads", "lds_writes"):
            if not (access := _LDS_ACCESS.search(opcode)):
                raise ValueError(f"{opcode}: an LDS access without a size")
            bytes_of_lane = int(access["bits"]) / 8 * (2 if access["two"] else 1)
            cycles["lds"] += count * bytes_of_lane * gpu.wave_size / gpu.lds_bytes_per_clock
    return cycles
