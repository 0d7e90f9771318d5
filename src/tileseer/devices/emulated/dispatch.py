"""Launches: workgroups and their waves, in an order drawn from a seed."""

import struct
from dataclasses import dataclass

import numpy as np

from tileseer.devices.emulated.faults import EmulationFault, NotExecutable
from tileseer.devices.emulated.memory import Block, Memory
from tileseer.devices.emulated.program import BARRIER, END, Program
from tileseer.devices.emulated.wave import LANES, Wave
from tileseer.gpu.code_object import Kernel

MOST_STOPS = 1_000_000
"""Barriers and waits of one workgroup after which it is taken to run for ever."""
GARBAGE = 0xFFFFFFFF
"""What registers, LDS and scratch hold before they are written: not a number in every type."""
_USER_SGPRS = ((1, 4), (2, 2), (4, 2), (8, 2), (16, 2), (32, 2), (64, 1))
"""Bits of the descriptor's properties, and how many registers each is: the scratch memory's buffer, dispatch, queue,
arguments, dispatch id, scratch, size."""
_ARGUMENTS, _SCRATCH_BUFFER = 8, 1


@dataclass(frozen=True)
class Launch:
    """One kernel over a grid of workgroups."""

    kernel: Kernel
    entry: int
    """Address of its first instruction."""
    arguments: int
    """Address of its arguments."""
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_lds: int = 0


def run(launch: Launch, program: Program, memory: Memory, seed: int) -> None:
    """Execute all workgroups. With seed 0 waves go on in their order and accesses wait as long as they may."""
    rng = np.random.default_rng(seed)
    count = int(np.prod(launch.grid))
    for number in rng.permutation(count) if seed else range(count):
        x, rest = int(number) % launch.grid[0], int(number) // launch.grid[0]
        place = (x, rest % launch.grid[1], rest // launch.grid[1])
        _workgroup(launch, program, memory, place, rng if seed else None)


def _workgroup(
    launch: Launch, program: Program, memory: Memory, place: tuple[int, int, int], rng: np.random.Generator | None
) -> None:
    threads = int(np.prod(launch.block))
    lds = Block(np.full(launch.kernel.lds_bytes + launch.dynamic_lds, 0xFF, np.uint8), "the LDS of a workgroup")
    waves = [
        _wave(launch, memory, lds, place, number, threads, bool(rng is not None and rng.integers(2)))
        for number in range(-(-threads // LANES))
    ]
    ready, waiting = list(waves), list[Wave]()
    for _ in range(MOST_STOPS):
        if not ready:
            if not waiting:
                return
            ready, waiting = sorted(waiting, key=lambda w: w.number), []
        chosen = 0 if rng is None else int(rng.integers(len(ready)))
        wave = ready[chosen]
        stop = program.run(wave)
        if stop == BARRIER:
            waiting.append(ready.pop(chosen))
        elif stop == END:
            # A barrier waits for the waves that still run.
            ready.pop(chosen)
    raise EmulationFault(f"workgroup {place} does not end: {MOST_STOPS} barriers and waits")


def _wave(
    launch: Launch, memory: Memory, lds: Block, place: tuple[int, int, int], number: int, threads: int, eager: bool
) -> Wave:
    kernel = launch.kernel
    scratch = Block(np.full(kernel.scratch_bytes * LANES, 0xFF, np.uint8), "the scratch memory of a wave")
    w = Wave(number, memory, lds, scratch, eager, GARBAGE)
    if kernel.properties & _SCRATCH_BUFFER and kernel.scratch_bytes:
        raise NotExecutable("scratch through a buffer is not emulated")
    at = 0
    for bit, registers in _USER_SGPRS:
        if kernel.properties & bit:
            if bit == _ARGUMENTS:
                w.s[at : at + 2] = struct.unpack("<II", struct.pack("<Q", launch.arguments))
            at += registers
    # Arguments that could lie in registers from the start are loaded by the code before the entry for those.
    at = kernel.rsrc2 >> 1 & 31
    for axis in range(3):
        if kernel.rsrc2 >> (7 + axis) & 1:
            w.s[at] = place[axis]
            at += 1
    thread = np.arange(number * LANES, (number + 1) * LANES)
    bx, by, _ = launch.block
    # The numbers of a work item in one register, ten bits each.
    w.v[0] = thread % bx | thread // bx % by << 10 | thread // (bx * by) << 20
    active = min(threads - number * LANES, LANES)
    w.set_exec((1 << active) - 1)
    w.pc = launch.entry
    return w
