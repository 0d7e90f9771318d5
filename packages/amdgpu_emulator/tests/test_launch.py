"""Kernels through the door of the package: orders of waves, memory, arguments, code objects, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from amd_instructions import encode
from tinygrad.runtime.autogen.amd.cdna import ins

from amdgpu_emulator import (
    CodeObject,
    Coverage,
    EmulatedGpu,
    EmulationFault,
    EmulationHang,
    KernelDescriptor,
    UnsupportedInstruction,
    load,
)  # fmt: skip

PROJECT = Path(__file__).parents[1]
SAXPY = Path(__file__).with_name("saxpy.co")
END = encode("SOPP", ins.SOPPOp.S_ENDPGM)
BARRIER = encode("SOPP", ins.SOPPOp.S_BARRIER)
WAIT = encode("SOPP", ins.SOPPOp.S_WAITCNT, simm16=0)
VOP1, VOP2, DS, GLOBAL = ins.VOP1Op, ins.VOP2Op, ins.DSOp, ins.GLOBALOp


def exchange(barrier, before=WAIT):
    """Each thread writes its number to LDS, then stores that of the thread 64 before it to memory.

    s[8:9] is the address of the arguments, of which the first is that of the output; s10 is the workgroup.
    """
    return b"".join([
        encode("SMEM", ins.SMEMOp.S_LOAD_DWORDX2, sbase=4, sdata=12, imm=1),
        encode("VOP2", VOP2.V_LSHLREV_B32_E32, src0=128 + 2, vsrc1=0, vdst=1),
        encode("DS", DS.DS_WRITE_B32, addr=1, data0=0),
        before,
        barrier,
        encode("VOP2", VOP2.V_SUBREV_U32_E32, src0=128 + 64, vsrc1=0, vdst=2),
        encode("VOP2_LIT", VOP2.V_AND_B32_E32, src0=255, vsrc1=2, vdst=2, literal=255),
        encode("VOP2", VOP2.V_LSHLREV_B32_E32, src0=128 + 2, vsrc1=2, vdst=2),
        encode("DS", DS.DS_READ_B32, addr=2, vdst=3),
        WAIT,
        encode("SOP2_LIT", ins.SOP2Op.S_MUL_I32, ssrc0=255, ssrc1=10, sdst=14, literal=1024),
        encode("VOP2", VOP2.V_ADD_U32_E32, src0=14, vsrc1=1, vdst=1),
        encode("GLOBAL", GLOBAL.GLOBAL_STORE_DWORD, addr=1, saddr=12, data=3),
        END,
    ])  # fmt: skip


def execute(*words, **options):
    out, done = execute_whole(*words, **options)
    return out, done.races


def execute_whole(code, seed=0, groups=3, threads=256, lds=1024, out_words=None, **options):
    out = np.full(groups * 256 if out_words is None else out_words, -1, np.int32)
    rows = ({".offset": 0, ".size": 8, ".value_kind": "global_buffer"},)
    # The arguments' address is in s[8:9], behind the scratch buffer, the dispatch and the queue.
    kernel = KernelDescriptor("exchange", 0, len(code), lds, 0, 8, rows, 10 << 1 | 1 << 7, 1 | 2 | 4 | 8)
    code_object = CodeObject("gfx950", {"exchange": kernel}, code, (0, len(code)))
    return out, code_object.launch("exchange", [groups], [threads], [out], seed=seed, **options)


def test_a_buffer_of_one_word_is_aligned_for_a_scalar_load():
    code = b"".join([
        encode("SMEM", ins.SMEMOp.S_LOAD_DWORDX2, sbase=4, sdata=12, imm=1),
        WAIT,
        encode("SMEM", ins.SMEMOp.S_LOAD_DWORD, sbase=6, sdata=16, imm=1),
        WAIT,
        encode("VOP1", VOP1.V_MOV_B32_E32, src0=12, vdst=2),
        encode("VOP1", VOP1.V_MOV_B32_E32, src0=128, vdst=1),
        encode("GLOBAL", GLOBAL.GLOBAL_STORE_DWORD, addr=1, saddr=12, data=2),
        END,
    ])  # fmt: skip
    out, races = execute(code, groups=1, threads=1, out_words=1)
    assert races == [] and out[0] % 16 == 0  # the low word of its own address


def test_threads_exchange_through_lds_in_every_order_and_need_the_barrier():
    want = np.tile((np.arange(256) - 64) % 256, 3)
    assert all((execute(exchange(BARRIER), seed)[0] == want).all() for seed in range(6))
    made = [execute(exchange(b""), seed)[0] for seed in range(8)]
    assert not all((out == want).all() for out in made)
    # What is read before it is written is not a number.
    assert any((out[:64] == -1).all() for out in made)


def wait(lgkm):
    return encode("SOPP", ins.SOPPOp.S_WAITCNT, simm16=15 | 3 << 14 | 7 << 4 | lgkm << 8)


def test_a_removed_barrier_and_a_weaker_wait_are_races_in_one_order():
    assert execute(exchange(BARRIER))[1] == []
    for code in (exchange(b""), exchange(BARRIER, before=wait(lgkm=1)), exchange(BARRIER, before=b"")):
        races = execute(code, groups=1)[1]
        (race,) = (race for race in races if race.memory == "the LDS of a workgroup")
        assert {race.first.what, race.second.what} == {"load", "store"} and race.first.wave != race.second.wave
        store, load_ = sorted((race.first, race.second), key=lambda access: access.what, reverse=True)
        assert code[store.address : store.address + 8] == encode("DS", DS.DS_WRITE_B32, addr=1, data0=0)
        assert code[load_.address : load_.address + 8] == encode("DS", DS.DS_READ_B32, addr=2, vdst=3)
        assert (race.kernel, race.offset % 256, race.size) == ("exchange", 0, 4)
        where = f"race in exchange: bytes {race.offset} to {race.offset + 3} of the LDS of a workgroup, "
        assert where in str(race) and "by wave " in str(race)


def store_to(shift, what="GLOBAL_STORE_DWORD"):
    """Each thread writes to the output: word ``thread >> shift``, the same in all workgroups."""
    return b"".join([
        encode("SMEM", ins.SMEMOp.S_LOAD_DWORDX2, sbase=4, sdata=12, imm=1),
        encode("VOP2", VOP2.V_LSHRREV_B32_E32, src0=128 + shift, vsrc1=0, vdst=1),
        encode("VOP2", VOP2.V_LSHLREV_B32_E32, src0=128 + 2, vsrc1=1, vdst=1),
        WAIT,
        encode("GLOBAL", getattr(GLOBAL, what), addr=1, saddr=12, data=0),
        END,
    ])  # fmt: skip


@pytest.mark.parametrize(("shift", "groups", "what", "is_race"), [
    (0, 1, "GLOBAL_STORE_DWORD", False),
    (0, 2, "GLOBAL_STORE_DWORD", True),
    (6, 1, "GLOBAL_STORE_DWORD", False),
    (7, 1, "GLOBAL_STORE_DWORD", True),
    (7, 2, "GLOBAL_ATOMIC_ADD", False),
])  # fmt: skip
def test_two_waves_that_store_to_one_byte_race_but_atomic_accesses_do_not(shift, groups, what, is_race):
    races = execute(store_to(shift, what), groups=groups)[1]
    assert bool(races) == is_race
    assert all(race.memory == "argument 0" and race.first.what == race.second.what == "store" for race in races)


@pytest.mark.parametrize(("order", "is_race"), [("load swap", False), ("swap load", True), ("load", True)])
def test_a_load_of_what_a_swap_then_expects_is_no_race(order, is_race):
    """Sums of bf16 are made that way."""
    access = {
        "load": encode("GLOBAL", GLOBAL.GLOBAL_LOAD_DWORD, addr=1, saddr=12, vdst=5) + WAIT,
        "swap": encode("GLOBAL", GLOBAL.GLOBAL_ATOMIC_CMPSWAP, addr=1, saddr=12, data=4),
    }
    begin = [
        encode("SMEM", ins.SMEMOp.S_LOAD_DWORDX2, sbase=4, sdata=12, imm=1),
        encode("VOP2", VOP2.V_LSHLREV_B32_E32, src0=128 + 2, vsrc1=0, vdst=1),
        WAIT,
    ]
    add = [] if "swap" in order else [encode("GLOBAL", GLOBAL.GLOBAL_ATOMIC_ADD, addr=1, saddr=12, data=0)]
    races = execute(b"".join([*begin, *(access[word] for word in order.split()), *add, END]), groups=2)[1]
    assert bool(races) == is_race
    assert all({race.first.what, race.second.what} == {"load", "atomic"} for race in races)


def test_a_scalar_load_is_there_only_when_no_access_is_pending():
    code = exchange(BARRIER)
    # The address of the output is loaded first; behind the write to the LDS a weaker wait would let it pass in order.
    weak = b"".join([
        encode("SMEM", ins.SMEMOp.S_LOAD_DWORDX2, sbase=4, sdata=12, imm=1),
        encode("VOP2", VOP2.V_LSHLREV_B32_E32, src0=128 + 2, vsrc1=0, vdst=1),
        encode("DS", DS.DS_WRITE_B32, addr=1, data0=0),
        wait(lgkm=1),
        encode("GLOBAL", GLOBAL.GLOBAL_STORE_DWORD, addr=1, saddr=12, data=0),
        END,
    ])  # fmt: skip
    assert execute(code)[1] == []
    with pytest.raises(EmulationFault, match="in no memory that was allocated"):
        execute(weak)


def test_the_last_wave_may_be_partial():
    out = execute(exchange(BARRIER), 1, groups=1, threads=100)[0]
    assert (out[:36] == -1).all() or (out[:64] == -1).all()
    assert out[64:100].tolist() == list(range(36)) and (out[100:] == -1).all()


def test_memory_that_was_not_allocated_is_a_fault():
    with pytest.raises(
        EmulationFault,
        match=r"GLOBAL_STORE_DWORD at 0x.*: 4 bytes at address 0x.* are in no memory.*: offset 1024 of argument 0",
    ):
        execute(exchange(BARRIER), groups=2, out_words=256)
    with pytest.raises(EmulationFault, match=r"outside of the LDS of a workgroup, which has 512 bytes"):
        execute(exchange(BARRIER), lds=512)


def test_a_load_of_what_nothing_has_written_is_reported():
    # What a fourth wave would write is read by wave 0.
    done = execute_whole(exchange(BARRIER), groups=1, threads=192)[1]
    (load_,) = (one for one in done.unwritten if one.memory == "the LDS of a workgroup")
    assert (load_.offset, load_.size, load_.access.what, load_.access.wave) == (768, 4, "load", 0)
    assert str(load_).endswith("takes 4 bytes at offset 768 of the LDS of a workgroup that nothing has written")
    assert not execute_whole(exchange(BARRIER))[1].unwritten
    assert not execute_whole(exchange(BARRIER), threads=192, check=["races"])[1].unwritten
    assert not execute(exchange(b""), check=["memory"])[1] and execute(exchange(b""), check=["races"])[1]
    code, arguments = load(SAXPY), saxpy()
    done = code.launch("saxpy", [2], [64], arguments, unwritten=[0])
    assert [(one.memory, one.offset) for one in done.unwritten] == [("argument 0", 0)]
    assert not code.launch("saxpy", [2], [64], arguments).unwritten


def test_memory_that_the_host_has_written_counts():
    gpu, content = EmulatedGpu(), np.zeros(16, np.uint8)
    gpu.memory.map(1 << 30, content, "a block", is_written=False)
    gpu.memory.mark_written((1 << 30) + 4, 12)
    found = []
    gpu.memory.note_accesses(found)
    lane = np.array([0])
    gpu.memory.load(np.array([(1 << 30) + 4]), 4, lane)
    assert [what for *_, what in found] == ["load"]
    gpu.memory.load(np.array([(1 << 30) + 2]), 4, lane)
    assert [what for *_, what in found] == ["load", "load", "unwritten"]
    with pytest.raises(EmulationFault, match="offset 8 of a block, which has 16 bytes"):
        gpu.memory.mark_written((1 << 30) + 8, 9)


def test_coverage_says_what_was_executed():
    code, coverage = load(SAXPY), Coverage()
    done = code.launch("saxpy", [2], [64], saxpy(), coverage=coverage)
    executed, every = coverage.counts(code, "saxpy")
    assert executed == len(done.addresses) <= every < executed + 8 and coverage.launched(code) == ["saxpy"]
    missing = coverage.missing(code, "saxpy")
    assert len(missing) == every - executed and not missing.keys() & done.addresses
    # A smaller launch reaches nothing new.
    code.launch("saxpy", [1], [64], saxpy(), coverage=coverage)
    assert coverage.counts(code, "saxpy") == (executed, every)


@pytest.mark.parametrize("waits", [WAIT, b""], ids=["with a wait", "without"])
def test_a_kernel_that_does_not_end_is_a_hang_in_a_loop_with_a_name(waits):
    loop = WAIT + waits + encode("SOPP", ins.SOPPOp.S_BRANCH, simm16=0xFFFF - len(waits) // 4) + END
    last = len(loop) - 8
    for most in (50, 30_000):
        with pytest.raises(EmulationHang, match=rf"wave 0 of .* not end: it is in the loop from 0x4 to {last:#x} when"):
            execute(loop, most_instructions=most)


def saxpy(count=100):
    return np.ones(count, np.float32), np.arange(100, dtype=np.float32), np.float32(3), np.uint32(100)


def test_arguments_reach_a_compiled_kernel():
    code, arguments = load(SAXPY), saxpy()
    execution = code.launch("saxpy", [2], [64], arguments)
    assert (arguments[0] == 3 * np.arange(100) + 1).all()
    assert execution.opcodes["s_endpgm"] == 2 and execution.opcodes["v_fmac_f32"] == 2
    begin, end = code.text
    assert code.kernels["saxpy"].entry in execution.addresses and all(begin <= a < end for a in execution.addresses)
    # On a GPU that is kept, from bytes, once more.
    gpu = EmulatedGpu()
    for _ in range(2):
        count = (100).to_bytes(4, "little")
        gpu.launch(load(SAXPY.read_bytes()), "saxpy", (2, 1, 1), (64, 1, 1), [*arguments[:3], count])
    assert (arguments[0] == 9 * np.arange(100) + 1).all()


def test_an_access_beside_a_buffer_and_a_store_to_an_input_are_faults():
    code = load(SAXPY)
    with pytest.raises(EmulationFault, match=r"4 bytes at .*: offset 396 of argument 0, which has 396 bytes"):
        code.launch("saxpy", [2], [64], saxpy(99))
    arguments = saxpy()
    arguments[0].flags.writeable = False
    with pytest.raises(
        EmulationFault, match=r"GLOBAL_STORE_DWORD at 0x.*: a store of 4 bytes at offset 0 of argument 0, which is"
    ):
        code.launch("saxpy", [2], [64], arguments)


def store_behind(carry):
    """Threads store their numbers 12 KiB behind the begin of the output."""
    return b"".join([
        encode("SMEM", ins.SMEMOp.S_LOAD_DWORDX2, sbase=4, sdata=12, imm=1),
        encode("VOP2", VOP2.V_LSHLREV_B32_E32, src0=128 + 2, vsrc1=0, vdst=1),
        WAIT,
        encode("SOP2_LIT", ins.SOP2Op.S_ADD_U32, ssrc0=12, ssrc1=255, sdst=12, literal=12 << 10),
        carry,
        encode("GLOBAL", GLOBAL.GLOBAL_STORE_DWORD, addr=1, saddr=12, data=0),
        END,
    ])  # fmt: skip


def test_a_buffer_lies_across_a_multiple_of_4_gib_so_that_a_dropped_carry_is_a_fault():
    out, _ = execute(
        store_behind(encode("SOP2", ins.SOP2Op.S_ADDC_U32, ssrc0=13, ssrc1=128, sdst=13)), groups=1, out_words=4096
    )
    assert (out[3072:3328] == np.arange(256)).all()
    with pytest.raises(EmulationFault, match="in no memory that was allocated"):
        execute(store_behind(b""), groups=1, out_words=4096)


@pytest.mark.parametrize(("changes", "message"), [
    ({"kernel": "axpy"}, "no kernel axpy, but saxpy"),
    ({"grid": [0]}, r"grid: \[0\]; choose one to three whole numbers of at least 1"),
    ({"grid": [1, 1, 1, 1]}, "grid: "),
    ({"block": []}, "block: "),
    ({"block": [64, 32]}, r"block: \[64, 32\]; a workgroup has 1024 threads at most"),
    ({"dynamic_lds": -4}, "dynamic_lds: -4"),
    ({"seed": -1}, "seed: -1"),
    ({"check": "race"}, "check: 'race'; choose of races, memory"),
    ({"unwritten": [1, 2]}, r"unwritten: \[2\]; the arguments that are buffers are \[0, 1\]"),
    ({2: np.float64(3)}, "argument 2 of saxpy has 4 bytes, not 8"),
    ({3: 100}, r"argument 3 is of type int; pass an array, or a number with a size as np.uint32\(1\)"),
    ({0: np.ones(200, np.float32)[::2]}, "argument 0: the array is not contiguous"),
    ({0: np.array([None] * 100)}, "argument 0: the array is not contiguous in C order, or not of numbers"),
])  # fmt: skip
def test_what_a_launch_cannot_take_is_named(changes, message):
    arguments = [changes.get(number, argument) for number, argument in enumerate(saxpy())]
    options = {name: value for name, value in changes.items() if isinstance(name, str)}
    with pytest.raises(ValueError, match=message):
        load(SAXPY).launch(**{"kernel": "saxpy", "grid": [2], "block": [64], "arguments": arguments} | options)


def test_what_no_gpu_can_launch_and_what_is_not_emulated_is_a_fault():
    code = load(str(SAXPY))
    with pytest.raises(ValueError, match="takes 4 arguments, not 3"):
        code.launch("saxpy", [2], [64], saxpy()[:3])
    with pytest.raises(EmulationFault, match="saxpy takes 200000 bytes of LDS; gfx950 has 163840"):
        code.launch("saxpy", [2], [64], saxpy(), dynamic_lds=200_000)
    with pytest.raises(EmulationFault, match="gfx1100 is not emulated; gfx90a, gfx942, gfx950 are"):
        replace(code, arch="gfx1100").launch("saxpy", [2], [64], saxpy())


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (encode("SOPP", ins.SOPPOp.S_TRAP, simm16=2) + END,
         r"S_TRAP at 0x0 by wave 0 of workgroup \(0, 0, 0\) of exchange: the kernel stops itself"),
        (encode("SOP1", ins.SOP1Op.S_MOV_B64, sdst=4, ssrc0=128) + encode("SOP1", ins.SOP1Op.S_SETPC_B64, ssrc0=4),
         r"a jump to 0x.*, where no machine code is"),
        (WAIT, r"a jump to 0x.*, where no machine code is"),
    ],
)  # fmt: skip
def test_a_trap_and_a_jump_out_of_the_code_are_faults_of_the_kernel(code, said):
    with pytest.raises(EmulationFault, match=said) as caught:
        execute(code)
    assert not isinstance(caught.value, UnsupportedInstruction)


def test_the_example_of_the_readme_runs(monkeypatch, capsys):
    readme = (PROJECT / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    monkeypatch.chdir(PROJECT)
    exec(example, {})
    (shown,) = re.findall(r"```text\n(.*?)```", readme, re.DOTALL)
    assert capsys.readouterr().out.split() == shown.split()
    assert len(example.splitlines()) <= 10


def test_a_negative_lds_address_with_an_offset_is_inside():
    # The compiler of the example reverses that way.
    numbers = np.arange(256, dtype=np.int32)
    load(SAXPY.with_name("reverse.co")).launch("reverse", [1], [64], [numbers[:64].copy()], check=[])
    done = load(SAXPY.with_name("reverse.co")).launch("reverse", [1], [256], [numbers], seed=5)
    assert {race.memory for race in done.races} == {"the LDS of a workgroup"}


def test_arguments_are_loaded_in_vectors_and_what_is_behind_them_is_no_number():
    code = b"".join([
        encode("SMEM", ins.SMEMOp.S_LOAD_DWORDX8, sbase=4, sdata=16, imm=1),
        encode("VOP2", VOP2.V_LSHLREV_B32_E32, src0=128 + 2, vsrc1=0, vdst=1),
        WAIT,
        encode("VOP1", VOP1.V_MOV_B32_E32, src0=20, vdst=2),
        encode("GLOBAL", GLOBAL.GLOBAL_STORE_DWORD, addr=1, saddr=16, data=2),
        END,
    ])  # fmt: skip
    assert (execute(code, groups=1, threads=64)[0] == -1).all()


def test_what_repeats_itself_ends_at_once_and_what_counts_may_go_on():
    for body in (b"", encode("DS", DS.DS_READ_B32, addr=2, vdst=3) + WAIT):
        loop = encode("VOP1", VOP1.V_MOV_B32_E32, src0=128, vdst=2) + body
        back = encode("SOPP", ins.SOPPOp.S_BRANCH, simm16=0xFFFF - len(body) // 4)
        with pytest.raises(EmulationHang, match="does not end: it is in the loop from 0x4 "):
            execute(loop + back + END, groups=1, most_instructions=1 << 40)
    count = encode("SOP2", ins.SOP2Op.S_ADD_U32, ssrc0=20, ssrc1=129, sdst=20) + encode(
        "SOPC_LIT", ins.SOPCOp.S_CMP_LT_U32, ssrc0=20, ssrc1=255, literal=20_000
    )
    again = encode("SOPP", ins.SOPPOp.S_CBRANCH_SCC1, simm16=0xFFFF - len(count) // 4)
    execute(encode("SOP1", ins.SOP1Op.S_MOV_B32, ssrc0=128, sdst=20) + count + again + END, groups=1, threads=64)


def test_a_fault_names_the_nearest_buffer_and_the_wave_of_the_lane():
    code = b"".join([
        encode("SMEM", ins.SMEMOp.S_LOAD_DWORDX2, sbase=4, sdata=12, imm=1),
        encode("VOP2", VOP2.V_LSHLREV_B32_E32, src0=128 + 2, vsrc1=0, vdst=1),
        WAIT,
        encode("SOP2", ins.SOP2Op.S_SUB_U32, ssrc0=12, ssrc1=128 + 16, sdst=12),
        encode("SOP2", ins.SOP2Op.S_SUBB_U32, ssrc0=13, ssrc1=128, sdst=13),
        encode("GLOBAL", GLOBAL.GLOBAL_STORE_DWORD, addr=1, saddr=12, data=0),
        END,
    ])  # fmt: skip
    with pytest.raises(EmulationFault, match=r"by wave 0 of .* of exchange: .*: offset -16 of argument 0, which has"):
        execute(code, groups=1)
    with pytest.raises(EmulationFault, match=r"by wave 3 of workgroup \(0, 0, 0\) of exchange: .*: offset 1008 of arg"):
        execute(
            code.replace(encode("SOP2", ins.SOP2Op.S_SUBB_U32, ssrc0=13, ssrc1=128, sdst=13), b"").replace(
                encode("SOP2", ins.SOP2Op.S_SUB_U32, ssrc0=12, ssrc1=128 + 16, sdst=12), b""
            ),
            groups=1,
            out_words=252,
        )


def test_all_that_is_not_emulated_is_known_at_once():
    lacks = (VOP1.V_CVT_OFF_F32_I4_E32, VOP1.V_PRNG_B32_E32)
    code = b"".join(encode("VOP1", op, src0=258, vdst=4) for op in lacks) + END
    with pytest.raises(UnsupportedInstruction, match=r"V_CVT_OFF_F32_I4_E32 is not emulated; .* later: V_PRNG_B32_E32"):
        execute(code, groups=1)
    descriptor = KernelDescriptor("lacking", 0, len(code), 0, 0, 8, (), 10 << 1, 8)
    missing = CodeObject("gfx950", {"lacking": descriptor}, code, (0, len(code))).missing("lacking")
    assert missing == {0: "V_CVT_OFF_F32_I4_E32", 4: "V_PRNG_B32_E32"}


def test_a_pointer_to_what_a_host_would_serve_says_what_needs_it():
    code = b"".join([
        encode("SMEM", ins.SMEMOp.S_LOAD_DWORDX2, sbase=4, sdata=12, imm=1),
        WAIT,
        encode("SMEM", ins.SMEMOp.S_LOAD_DWORD, sbase=6, sdata=16, imm=1),
        WAIT,
        END,
    ])  # fmt: skip
    rows = ({".offset": 0, ".size": 8, ".value_kind": "hidden_hostcall_buffer"},)
    kernel = KernelDescriptor("printing", 0, len(code), 0, 0, 8, rows, 10 << 1, 1 | 2 | 4 | 8)
    with pytest.raises(UnsupportedInstruction, match=r"of printing: what hidden_hostcall_buffer \(of printf, assert"):
        CodeObject("gfx950", {"printing": kernel}, code, (0, len(code))).launch("printing", [1], [64], [])
