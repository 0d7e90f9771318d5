"""What is read of an assembly listing."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tileseer.build import instructions

MFMA = "v_mfma_f32_16x16x16_bf16"


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
