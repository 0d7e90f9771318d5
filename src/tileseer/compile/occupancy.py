"""How many blocks of a compiled kernel are resident on one compute unit."""

from tileseer.gpu.hardware import Hardware

VGPR_GRANULE = 8
"""Vector registers are given to a wave in steps of this many, also to a warp."""
RESERVED_SHARED_BYTES = 1024
"""Shared memory that the system takes of each resident block: a multiprocessor has room for it beside the largest block
that ``hardware.lds_kib`` allows (CUDA C++ programming guide, compute capability 8.0 and later)."""
SHARED_GRANULE = 128
BLOCKS_PER_SM = 32


def blocks_per_cu(threads: int, registers: int, lds_bytes: int, hardware: Hardware) -> float:
    """Blocks that fit by registers, LDS and wave slots; 0 if not one does.

    ``threads`` and ``lds_bytes`` are those of a block, ``registers`` a lane's vector and accumulation registers: they
    come from one file on CDNA2 and later. Waves of a block spread over the SIMDs of the unit.
    """
    waves = -(-threads // hardware.wave_size)
    allocated = -(-max(registers, 1) // VGPR_GRANULE) * VGPR_GRANULE
    slots = hardware.max_waves_per_cu // hardware.simds_per_cu
    by_registers = min(hardware.vgprs_per_simd_lane // allocated, slots) * hardware.simds_per_cu // waves
    return float(min(by_registers, hardware.lds_bytes // lds_bytes) if lds_bytes else by_registers)


def blocks_per_sm(threads: int, registers: int, shared_bytes: int, hardware: Hardware) -> float:
    """Blocks that fit on a multiprocessor of an NVIDIA GPU; 0 if not one does.

    ``shared_bytes`` is the shared memory of a block, ``registers`` are a thread's.
    """
    taken = -(-shared_bytes // SHARED_GRANULE) * SHARED_GRANULE + RESERVED_SHARED_BYTES
    by_shared = (hardware.lds_bytes + RESERVED_SHARED_BYTES) // taken
    return float(min(blocks_per_cu(threads, registers, 0, hardware), by_shared, BLOCKS_PER_SM))
