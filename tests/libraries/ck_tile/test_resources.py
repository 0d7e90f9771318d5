"""Resource estimates: figures by hand, every fault, and the hint that the kernel itself derives."""

import pytest
from kernel_samples import a_kernel
from repository import COEFFICIENTS, GPUS, MI355X

from tileseer.libraries.ck_tile import kernel
from tileseer.libraries.ck_tile.kernel import PIPELINES
from tileseer.libraries.ck_tile.resources import Blocks, estimate


def need(product="gfx950_mi355x", **changes):
    """A block of one kernel."""
    return Blocks(kernel.frame([a_kernel(**changes)]), GPUS[product], COEFFICIENTS)


def test_figures_by_hand():
    plain = need()
    assert (plain.waves, plain.waves_per_simd) == (4, 1)
    # 64 x 64 elements over 256 threads are 16 each: 4 loads of 4 for A, 2 of 8 for B.
    assert (plain.loads_a, plain.loads_b) == (4, 2)
    # (64 + 64) rows of 64 elements of 2 bytes, a sixteenth of padding.
    assert plain.lds_bytes == 128 * 64 * 2 * 17 / 16
    # base + addresses of loads + accumulators + loads in flight + fragments
    assert plain.vgprs == 84 + 2 * 4 + 64 * 64 / 256 + (4 * 4 + 2 * 8) * 2 / 4 + (16 + 64) / 16 * 4
    assert (plain.vgpr_budget, plain.spill_ratio, plain.occupancy, plain.faults) == (256, 0, 3, "")


def test_large_shuffled_tile_sets_the_lds_size():
    small_k = need(tile_m=128, tile_n=128, tile_k=8, wave_m=2, wave_n=2, warp_tile_m=32, warp_tile_n=32, warp_tile_k=8)
    assert small_k.lds_bytes == 4 * 32 * 32 * 4


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("double", [False, True])
def test_register_budget_follows_the_kernels_own_blocks_per_cu(pipeline, double):
    changes = {"pipeline": pipeline, "double_smem_buffer": double}
    blocks, waves = a_kernel(**changes).blocks_per_cu, need(**changes).waves_per_simd
    assert need(**changes).vgpr_budget == 512 / min(waves * blocks, max(waves, 4))


def test_what_is_short_first_decides_how_many_blocks_are_resident():
    # Registers: 512 a lane, 108 a block of one wave a SIMD.
    small = {"tile_m": 16, "wave_m": 1, "wave_n": 4}
    assert need(**small).occupancy == 4
    # LDS: 34 KiB a block of 160 on an MI355X and of 64 on an MI300X.
    assert need(double_smem_buffer=True).occupancy == 3
    assert need("gfx942_mi300x", double_smem_buffer=True).occupancy == 1
    # Wave slots: 8 a SIMD.
    assert need(tile_m=128, tile_n=128, wave_m=4, wave_n=4).occupancy == 1


@pytest.mark.parametrize(
    ("changes", "product", "fault"),
    [
        ({"tile_m": 96}, "gfx950_mi355x", "multiple of waves"),
        ({"tile_k": 24}, "gfx950_mi355x", "multiple of waves"),
        ({"tile_m": 256, "tile_n": 128, "wave_m": 16, "wave_n": 2}, "gfx950_mi355x", "1024 threads"),
        ({"tile_m": 256, "tile_n": 256, "tile_k": 128}, "gfx942_mi300x", "64 KiB of LDS"),
        ({"tile_m": 256, "tile_n": 256, "wave_m": 1}, "gfx950_mi355x", "registers"),
        ({"pipeline": "wavelet", "wave_m": 4, "wave_n": 4}, "gfx950_mi355x", "1024 threads"),
    ],
)
def test_faults_name_their_reason(changes, product, fault):
    assert fault in need(product, **changes).faults[0]


def test_no_block_fits_when_waves_have_no_slots():
    short = COEFFICIENTS.model_copy(update={"occupancy": COEFFICIENTS.occupancy.model_copy(update={"max_waves": 0.5})})
    assert "not one block" in Blocks(kernel.frame([a_kernel()]), MI355X, short).faults[0]


def test_a_row_depends_on_no_neighbour_and_aliases_need_the_same():
    pool = kernel.frame([a_kernel(pipeline=name) for name in PIPELINES])
    table = estimate(pool, MI355X, COEFFICIENTS).set_index(pool["pipeline"])
    for row, name in enumerate(PIPELINES):
        alone = estimate(pool.iloc[[row]], MI355X, COEFFICIENTS).iloc[0].tolist()
        assert alone == table.loc[name].tolist() == table.loc[COEFFICIENTS.aliases.get(name, name)].tolist()
