"""What is read of an assembly listing: instructions of the code and of the main loop, and their static cycles."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileseer.compile import instructions
from tileseer.gpus import hardware
from tileseer.kernels.ck_tile.kernel import parse

GPUS = hardware.read_products(Path(__file__).parents[2] / "config/hardware.yaml")
KERNEL = parse("grouped_conv_fwd_bf16_nhwgc_2d_compv3_cshuffle_intrawave_64x64x64_4x1x1_16x16x16")
MFMA = "v_mfma_f32_16x16x16_bf16"
LISTING = """\
kernel:                                 ; @kernel
; %bb.0:
	s_load_dwordx2 s[0:1], s[4:5], 0x0
.LBB0_1:                                ; =>This Loop Header: Depth=1
                                        ;     Child Loop BB0_2 Depth 2
	s_barrier
	v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], v[0:3]
.LBB0_2:                                ;   Parent Loop BB0_1 Depth=1
                                        ; =>  This Inner Loop Header: Depth=2
	v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], v[0:3]
	v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], v[0:3]
	s_and_saveexec_b64 s[2:3], vcc
; %bb.3:                                ;   in Loop: Header=BB0_2 Depth=2
	buffer_load_dwordx4 v[0:3], v4, s[0:3], 0 offen
	; sched_barrier mask(0x00000000)
	s_waitcnt vmcnt(0)
	scratch_load_dword v1, off, s32
	s_cbranch_scc1 .LBB0_2
; %bb.4:                                ;   in Loop: Header=BB0_1 Depth=1
	ds_read_b64 v[0:1], v2
	s_cbranch_scc1 .LBB0_1
.LBB0_5:                                ; =>This Inner Loop Header: Depth=1
	v_add_u32_e32 v0, v1, v2
	s_cbranch_vccnz .LBB0_5
; %bb.6:
	v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], v[0:3]
	s_endpgm
.Lfunc_end0:
	.size	kernel, .Lfunc_end0-kernel
other:
; %bb.0:
	s_endpgm
.Lfunc_end1:
"""


def test_the_main_loop_is_the_innermost_one_with_the_most_matrix_instructions():
    found = instructions.listings(LISTING)
    assert found["other"] == instructions.Listing({"s_endpgm": 1}, {})
    assert found["kernel"].code[MFMA] == 4 and sum(found["kernel"].code.values()) == 16
    assert found["kernel"].loop == {
        MFMA: 2, "s_and_saveexec_b64": 1, "buffer_load_dwordx4": 1, "s_waitcnt": 1, "scratch_load_dword": 1,
        "s_cbranch_scc1": 1,
    }  # fmt: skip
    assert instructions.matrix_shapes(found["kernel"].loop) == f"2 {MFMA}"
    kinds = instructions.of_kinds(found["kernel"].loop)
    assert {kind: count for kind, count in kinds.items() if count} == {
        "mfma": 2, "buffer_loads": 1, "waits": 1, "scratch": 1, "salu": 2,
    }  # fmt: skip


def test_without_matrix_instructions_in_a_loop_there_is_no_main_loop():
    text = LISTING.replace(MFMA, "v_add_f32_e32")
    assert instructions.listings(text)["kernel"].loop == {}


def test_static_cycles_are_those_of_a_calculation_by_hand():
    # A wave: 16 products of 2 x 16 x 16 x 16 FLOP are a quarter of 2 x 64 x 64 x 64. Half rate: 2048 FLOP a cycle.
    loop = {MFMA: 16, "v_add_u32_e32": 100, "v_mul_lo_u32": 3, "ds_read_b64": 8, "ds_write2_b64": 2, "s_barrier": 2}
    found = instructions.step_cycles(loop, KERNEL, GPUS["gfx950_mi355x"])
    assert found == {
        "k_steps": 1.0,
        "valu": 100 * 4 + 3 * 16,  # one wave a SIMD
        "mfma": 4 * 16 * 8192 / 2048,
        "lds": 4 * 64 * (8 * 8 + 2 * 16) / 128,
    }
    # The instruction of twice that k has the full rate; gfx90a has one rate, a quarter of it.
    long = {"v_mfma_f32_16x16x32_bf16": 8}
    assert instructions.step_cycles(long, KERNEL, GPUS["gfx950_mi355x"])["mfma"] == 128
    assert instructions.step_cycles({f"{MFMA}_1k": 16}, KERNEL, GPUS["gfx90a_mi210"])["mfma"] == 512
    assert instructions.step_cycles({"v_mfma_f32_16x16x4f32": 64}, KERNEL, GPUS["gfx90a_mi210"])["mfma"] == 2048


OPCODES = st.sampled_from([
    MFMA, "v_add_u32_e32", "v_mad_u64_u32", "buffer_load_dwordx4", "ds_read_b64", "ds_write_b16_d16_hi",
    "s_waitcnt", "s_barrier", "s_add_i32", "scratch_store_dword",
])  # fmt: skip
CODE = st.lists(OPCODES, max_size=6)
LOOPS = st.recursive(CODE.map(lambda code: (code, [])), lambda inner: st.tuples(CODE, st.lists(inner, max_size=2)))


@settings(max_examples=100, deadline=None)
@given(st.lists(LOOPS, max_size=3), CODE)
def test_any_nest_of_loops_is_read_as_it_was_written(loops, outside):
    """Each loop is its header's block, its inner loops, and a block behind them."""
    own, lines = [], ["kernel:", "; %bb.0:", *(f"\t{opcode} x" for opcode in outside)]

    def write(loop, depth):
        code, inner = loop
        name = f"BB0_{len(own) + 1}"
        own.append(Counter(code))
        lines.append(f".L{name}:   ; =>This {'' if inner else 'Inner '}Loop Header: Depth={depth}")
        lines.extend(f"\t{opcode} x" for opcode in code[:3])
        for one in inner:
            write(one, depth + 1)
        lines.append(f"; %bb.9:   ;   in Loop: Header={name} Depth={depth}")
        lines.extend(f"\t{opcode} x" for opcode in code[3:])

    for loop in loops:
        write(loop, 1)
    lines += ["; %bb.10:", "\ts_endpgm", ".Lfunc_end0:"]
    found = instructions.listings("\n".join(lines))["kernel"]
    assert found.code == sum(own, Counter([*outside, "s_endpgm"]))
    most = max((loop[MFMA] for loop in own), default=0)
    if most:
        assert found.loop[MFMA] == most and found.loop in own
    else:
        assert found.loop == {}


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(OPCODES, st.integers(1, 40)), st.integers(2, 5))
def test_unrolling_changes_the_steps_of_a_pass_and_no_cycles_of_a_step(loop, times):
    loop = loop | {MFMA: 16}
    gpu = GPUS["gfx950_mi355x"]
    once = instructions.step_cycles(loop, KERNEL, gpu)
    unrolled = instructions.step_cycles({opcode: times * count for opcode, count in loop.items()}, KERNEL, gpu)
    assert unrolled.pop("k_steps") == pytest.approx(times * once.pop("k_steps"))
    assert unrolled == pytest.approx(once)
