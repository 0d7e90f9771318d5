"""What is read of an assembly listing: its instructions, and the cycles that they take."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileseer.build import instructions
from tileseer.facts import hardware

GPUS = hardware.read_products(Path(__file__).parents[2] / "config/hardware.yaml")
MFMA = "v_mfma_f32_16x16x16_bf16"


def test_cycles_are_those_of_a_calculation_by_hand():
    # 16 products of 2 x 16 x 16 x 16 FLOP. Half rate: 2048 FLOP a cycle.
    opcodes = {MFMA: 16, "v_add_u32_e32": 100, "v_mul_lo_u32": 3, "ds_read_b64": 8, "ds_write2_b64": 2, "s_barrier": 2}
    assert instructions.unit_cycles(opcodes, GPUS["gfx950_mi355x"]) == {
        "valu": (100 * 4 + 3 * 16) / 4,  # of four SIMDs
        "mfma": 16 * 8192 / 2048,
        "lds": 64 * (8 * 8 + 2 * 16) / 128,
    }


@pytest.mark.parametrize(
    ("opcode", "count", "gpu", "cycles"),
    [
        # The instruction of twice that k has the full rate; gfx90a has one rate, a quarter of it.
        ("v_mfma_f32_16x16x32_bf16", 8, "gfx950_mi355x", 32),
        (f"{MFMA}_1k", 16, "gfx90a_mi210", 128),
        ("v_mfma_f32_16x16x4f32", 64, "gfx90a_mi210", 512),
    ],
)
def test_matrix_instructions_have_the_rate_of_their_shape(opcode, count, gpu, cycles):
    assert instructions.unit_cycles({opcode: count}, GPUS[gpu])["mfma"] == cycles


OPCODES = st.sampled_from([
    MFMA, "v_add_u32_e32", "v_mad_u64_u32", "buffer_load_dwordx4", "ds_read_b64", "ds_write_b16_d16_hi",
    "s_waitcnt", "s_barrier", "s_add_i32", "scratch_store_dword",
])  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(OPCODES), min_size=1, max_size=4))
def test_the_instructions_of_each_function_are_counted(functions):
    lines = ["\t.text"]
    for number, opcodes in enumerate(functions):
        lines += [f"kernel{number}:   ; @kernel{number}", f".LBB{number}_1:   ; =>This Inner Loop Header: Depth=1"]
        lines += [f"\t{opcode} v[0:3], v4" for opcode in opcodes]
        lines += ["\t; sched_barrier mask(0x00000000)", f".Lfunc_end{number}:", f"\t.size\tkernel{number}, 8"]
    found = instructions.listings("\n".join(lines))
    assert found == {f"kernel{number}": Counter(opcodes) for number, opcodes in enumerate(functions)}


def test_kinds_are_told_by_the_beginning_of_an_opcode():
    opcodes = {MFMA: 2, "s_and_saveexec_b64": 1, "buffer_load_dwordx4": 1, "s_barrier": 3, "global_atomic_add": 1}
    kinds = instructions.count_kinds(opcodes)
    assert {kind: count for kind, count in kinds.items() if count} == {
        "mfma": 2,
        "buffer_loads": 1,
        "buffer_stores": 1,
        "barriers": 3,
    }
