"""The cycles of instructions."""

from pathlib import Path

import pytest

from tileseer.facts import hardware
from tileseer_emulated.cycles import unit_cycles

GPUS = hardware.read_products(Path(__file__).parents[3] / "config/hardware.yaml")
MFMA = "v_mfma_f32_16x16x16_bf16"


def test_cycles_are_those_of_a_calculation_by_hand():
    # 16 products of 2 x 16 x 16 x 16 FLOP. Half rate: 2048 FLOP a cycle.
    opcodes = {MFMA: 16, "v_add_u32_e32": 100, "v_mul_lo_u32": 3, "ds_read_b64": 8, "ds_write2_b64": 2, "s_barrier": 2}
    assert unit_cycles(opcodes, GPUS["gfx950_mi355x"]) == {
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
    assert unit_cycles({opcode: count}, GPUS[gpu])["mfma"] == cycles
