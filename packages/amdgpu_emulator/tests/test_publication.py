"""Workgroups that publish by release and acquire are ordered; each part of that which is missing is a race."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from amd_instructions import encode
from tinygrad.runtime.autogen.amd.cdna import ins

from amdgpu_emulator import EmulationHang, UnsupportedInstruction, decoder, load
from amdgpu_emulator.access_check import Record
from amdgpu_emulator.publication import INVALIDATES, Event, Publication
from amdgpu_emulator.wave import Issue

NOP = encode("SOPP", ins.SOPPOp.S_NOP)
THREADS, GROUPS = 256, 3


def code_of(arch):
    return load(Path(__file__).with_name(f"publish_{arch}.co"))


def run(code, kernel, **options):
    data, flag, out = (
        np.full(THREADS * GROUPS, -1, np.int32),
        np.zeros(1, np.int32),
        np.zeros(THREADS * GROUPS, np.int32),
    )
    done = code.launch(kernel, [GROUPS], [THREADS], [data, flag, out], **options)
    return out.reshape(GROUPS, THREADS), [race.memory for race in done.races]


def without(code, kernel, name, number=0):
    """The code without one of its instructions of a name, counted from the end."""
    descriptor, places = code.kernels[kernel], []
    at = descriptor.entry
    while at < descriptor.entry + descriptor.code_bytes:
        inst = decoder.decode(code.image, at, code.arch)
        if inst.opcode == name:
            places.append((at, inst.size))
        at += inst.size
    at, size = places[::-1][number]
    return replace(code, image=code.image[:at] + NOP * (size // 4) + code.image[at + size :])


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_what_is_released_and_acquired_is_no_race(arch):
    out, races = run(code_of(arch), "publish")
    assert races == [] and (out[1:] == np.arange(THREADS) + 7).all()
    for seed in range(4):
        out, races = run(code_of(arch), "last_adds", seed=seed)
        assert races == [] and (out[0] == 3 * np.arange(THREADS) + 3).all()
        assert run(code_of(arch), "locked", seed=seed)[1] == []


@pytest.mark.parametrize(("arch", "kernel", "name", "number"), [
    # The acquire, and what the barriers pass on; in the first kernel's code the consumer comes first.
    ("gfx90a", "publish", "BUFFER_INV", 0),
    ("gfx90a", "publish", "S_BARRIER", 0),
    ("gfx90a", "publish", "S_BARRIER", 1),
    ("gfx942", "publish", "BUFFER_INV", 0),
    ("gfx942", "publish", "S_BARRIER", 0),
    ("gfx942", "publish", "S_BARRIER", 1),
    # The release, with the wait for it.
    ("gfx942", "publish", "BUFFER_WBL2", 0),
    ("gfx942", "publish", "S_WAITCNT", 0),
    ("gfx90a", "locked", "BUFFER_INV", 0),
    ("gfx942", "locked", "BUFFER_INV", 0),
    ("gfx942", "locked", "BUFFER_WBL2", 0),
    ("gfx90a", "locked", "S_BARRIER", 0),
    ("gfx942", "locked", "S_BARRIER", 1),
    ("gfx90a", "last_adds", "S_BARRIER", 1),
    ("gfx942", "last_adds", "S_BARRIER", 1),
])  # fmt: skip
def test_each_missing_part_is_a_race(arch, kernel, name, number):
    assert "argument 0" in run(without(code_of(arch), kernel, name, number), kernel)[1]


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_a_wait_for_a_workgroup_that_has_not_run_is_not_executable(arch):
    code = replace(code_of(arch), lines=((0, "publish.hip:20"),))
    said = r"wave 0 of workgroup \(0, 0, 0\) waits in the loop from 0x\w+ to 0x\w+ \(publish.hip:20\), by what it reads"
    with pytest.raises(UnsupportedInstruction, match=said + " at .*, for one of the 2 workgroups that have not run"):
        run(code, "wait_for_last", most_instructions=20_000)
    # Nobody is left to wait for.
    data, flag, out = (np.zeros(THREADS * 2, np.int32) for _ in range(3))
    kernel = without(code, "publish", "GLOBAL_STORE_DWORD")
    with pytest.raises(EmulationHang, match=r"does not end: it is in the loop from .* \(publish.hip:20\)"):
        kernel.launch("publish", [2], [THREADS], [data, flag, out], most_instructions=20_000)


def test_what_whole_waves_publish_is_passed_on_from_workgroup_to_workgroup():
    def record(group, what, number):
        waves, places = np.zeros(64, np.int64), 4 * np.arange(64)
        return Record((group, 0, 0), Issue(0, 0, number), 0, 10 * group + number, what, waves, places, 4)

    published = Publication(writes_back=False)
    for group, number in ((1, 2), (2, 1)):
        published.add_fence(replace(record(group, INVALIDATES, number), waves=np.zeros(1, int)))
    # Each workgroup adds to 64 counters of an allocation, acquires, and adds to those of the next one.
    published.add([record(0, "atomic", 1), record(1, "atomic", 0)])
    published.add([record(0, "atomic", 2), record(1, "atomic", 1)])
    published.add([record(1, "atomic", 3), record(2, "atomic", 0)])
    load_ = Event(record(2, "load", 2), 0)
    assert published.orders(Event(record(0, "store", 0), 0), load_)
    assert not published.orders(Event(record(1, "store", 4), 0), load_)  # after all that it released
