"""Features: formulas against hand calculations, and the same values in training and in selection."""

import math
from dataclasses import replace

import learning_samples as samples
import numpy as np
import pytest
from kernel_samples import a_kernel

from tileseer.core.errors import UserError
from tileseer.learn import features
from tileseer.learn.features import Features
from tileseer.problems import problem
from tileseer.problems.problem import Problem

BIG = a_kernel(tile_m=32, tile_n=128, wave_m=1, wave_n=4, warp_tile_m=32, warp_tile_n=32)
WEIGHT = a_kernel(variant="bwd_weight")
TILESEER = Features.of("tileseer", samples.MI355X)


def row(config, split_k=1, resources=None, **dims):
    """Features of one pair, by name."""
    table = problem.problem_frame([Problem.from_dims(config.variant, config.dtype, **dims)])
    pool = samples.candidates([config], (split_k,)).assign(**(resources or {}))
    values = TILESEER.matrix(table, pool, np.array([0]), np.array([0]))
    return dict(zip(TILESEER.names, values[0].tolist(), strict=True))


def blocks(found):
    return round(found["blocks_per_cu"] * samples.MI355X.compute_units, 2)


def test_forward_pair_by_hand():
    # 28x28 3x3, N 8: M = 8*28*28 = 6272, N = 256, K = 256*9 = 2304; tiles 196 x 2, 36 steps.
    found = row(BIG, resources={"occupancy": 2.0}, N=8, C=256, K=256, Hi=28, Wi=28, Y=3, X=3, pad_h=1, pad_w=1)
    flops = 2 * 6272 * 256 * 2304
    assert (found["gemm_m"], found["gemm_n"], found["gemm_k"]) == (6272, 256, 2304)
    assert (found["tiles_n"], found["k_steps"]) == (2, 36)
    assert found["blocks_per_cu"] == pytest.approx(392 / 256)
    assert found["waves"] == pytest.approx(392 / 512)
    assert found["wave_fill"] == pytest.approx(392 / 512)
    assert found["unit_fill"] == pytest.approx(392 / 512)
    assert found["fill_m"] == found["fill_n"] == found["fill_k"] == 1
    assert found["useful_fraction"] == pytest.approx(1)
    # 256 threads; A 32*64/(256*4) = 2 vectors, B 128*64/(256*8) = 4.
    assert (found["loads_a"], found["loads_b"], found["chain_loads"]) == (2, 4, 36 * 6)
    unique = 2 * (8 * 256 * 28 * 28 + 256 * 256 * 9 + 8 * 256 * 28 * 28)
    assert found["reload_factor"] == pytest.approx(392 * 36 * (32 + 128) * 64 * 2 / unique)
    assert found["roofline_ratio"] == pytest.approx(flops / unique / (256 * 4096 * 2.4e9 / 8e12), rel=1e-5)
    assert found["epilogue_elements"] == 2 * 32 * 128


def test_padding_waste_and_partial_tiles():
    found = row(BIG, N=1, C=24, K=40, Hi=5, Wi=7)
    assert (found["gemm_m"], found["gemm_n"], found["gemm_k"]) == (35, 40, 24)
    assert (found["tiles_n"], found["k_steps"]) == (1, 1)
    assert found["fill_m"] == pytest.approx(35 / 64)
    assert found["fill_n"] == pytest.approx(40 / 128)
    assert found["fill_k"] == pytest.approx(24 / 64)
    assert found["useful_fraction"] == pytest.approx(35 * 40 * 24 / (64 * 128 * 64))


def test_merged_groups_enlarge_the_gemm_and_waste_the_rest():
    merging = replace(BIG, num_groups_to_merge=4)
    found = row(merging, N=2, C=64, K=64, G=8, Hi=16, Wi=16)
    # c = k = 8: M' = 512*4, N' = 32, two batches of merged groups.
    assert found["fill_m"] == found["tiles_n"] == 1
    assert blocks(found) == 128
    assert found["vector_runs_a"] == 8 * 4 / 4
    assert found["useful_fraction"] == pytest.approx(2 * 512 * 64 * 8 / (128 * 2 * 32 * 128 * 64))


@pytest.mark.parametrize("split_k", [1, 8, 64, 1000])
def test_split_k_divides_the_steps_and_multiplies_the_blocks(split_k):
    found = row(WEIGHT, split_k=split_k, N=4, C=64, K=128, Hi=14, Wi=14, Y=3, X=3, pad_h=1, pad_w=1)
    # M = 128, N = 64*9 = 576, K = 784: 2 x 9 tiles, 13 steps.
    slices = min(split_k, 13)
    assert blocks(found) == 18 * slices
    assert found["k_steps"] == math.ceil(13 / slices)
    assert found["partial_bytes"] == 4 * 128 * 576 * slices


def test_stream_k_launches_what_the_device_holds():
    streaming = replace(WEIGHT, streamk="tree")
    found = row(streaming, resources={"occupancy": 2.0}, N=64, C=256, K=256, Hi=28, Wi=28, Y=3, X=3, pad_h=1, pad_w=1)
    tiles, steps = 4 * 36, 64 * 28 * 28 // 64
    assert blocks(found) == 512
    assert found["k_steps"] == math.ceil(tiles * steps / 512)
    assert found["wave_fill"] == 1


def test_strided_backward_data_counts_its_sub_gemms():
    config = replace(BIG, variant="bwd_data")
    found = row(config, N=2, C=128, K=64, Hi=28, Wi=28, Y=3, X=3, stride_h=2, stride_w=2, pad_h=1, pad_w=1)
    assert found["sub_gemms"] == 4
    assert (found["gemm_m"], found["gemm_n"], found["gemm_k"]) == (2 * 14 * 14, 128, 64 * 4)
    assert blocks(found) == math.ceil(392 / 32) * 1 * 4


def test_aliases_of_one_pipeline_look_alike():
    first = replace(BIG, pipeline="basic_v1")
    second = replace(BIG, pipeline="compv1")
    dims = {"N": 1, "C": 64, "K": 64, "Hi": 8, "Wi": 8}
    assert row(first, **dims)["pipeline"] == row(second, **dims)["pipeline"]
    assert row(first, **dims)["pipeline"] != row(BIG, **dims)["pipeline"]


def pairs_of(data):
    return data.problems, data.candidates, data.problem, data.candidate


@pytest.mark.parametrize("variant", ["forward", "bwd_data", "bwd_weight"])
def test_a_subset_has_the_values_of_the_whole(variant):
    data = samples.measured(variant)
    whole = TILESEER.matrix(*pairs_of(data))
    chosen = np.random.default_rng(0).permutation(len(data.problem))[:37]
    part = TILESEER.matrix(data.problems, data.candidates, data.problem[chosen], data.candidate[chosen])
    assert whole.dtype == np.float32
    assert np.isfinite(whole).all()
    np.testing.assert_array_equal(part, whole[chosen])
    # A selection computes one problem against the pool: tables of other lengths, same values.
    rows = np.flatnonzero(data.problem == 5)[2:6]
    one, few = data.problems.iloc[[5]], data.candidates.iloc[data.candidate[rows]]
    mine = TILESEER.matrix(one, few, np.zeros(4, int), np.arange(4))
    np.testing.assert_array_equal(mine, whole[rows])


def test_names_choose_columns_and_their_order_and_chunks_change_nothing(monkeypatch):
    pairs, names = pairs_of(samples.measured()), ("waves", "tile_m", "gemm_k")
    expected = TILESEER.matrix(*pairs)[:, [TILESEER.names.index(name) for name in names]]
    monkeypatch.setattr(features, "PAIRS_AT_ONCE", 13)
    np.testing.assert_array_equal(Features.of("tileseer", samples.MI355X, names).matrix(*pairs), expected)


@pytest.mark.parametrize("name", features.feature_sets())
def test_every_feature_is_documented_and_unique(name):
    chosen = features.feature_sets()[name]
    assert len(set(chosen.names)) == len(chosen.names)
    assert all(f.unit and f.meaning for f in (*chosen.problem, *chosen.candidate, *chosen.pair))


def test_what_a_compiler_says_of_the_code_is_a_feature_only_where_it_is_known():
    data = samples.measured()
    assert features.fitting("tileseer", data.candidates) == "tileseer"
    unknown = data.candidates.assign(**dict.fromkeys(features.CODE_COLUMNS, np.nan))
    assert features.fitting("tileseer", unknown) == "tileseer"
    compiled = unknown.assign(n_mfma=np.arange(len(unknown), dtype=float))
    assert features.fitting("tileseer", compiled) == "compiled"
    assert features.fitting("reference", compiled) == "reference"
    pairs, with_code = pairs_of(replace(data, candidates=compiled)), Features.of("compiled", samples.MI355X)
    matrix = with_code.matrix(*pairs)
    np.testing.assert_array_equal(matrix[:, with_code.names.index("n_mfma")], data.candidate)
    own = [with_code.names.index(name) for name in TILESEER.names]
    np.testing.assert_array_equal(matrix[:, own], TILESEER.matrix(*pairs))


def test_mistakes_are_user_errors():
    data = samples.measured()
    with pytest.raises(UserError, match="nonsense"):
        Features.of("tileseer", samples.MI355X, ("nonsense",))
    with pytest.raises(UserError, match="unknown"):
        Features.of("unknown", samples.MI355X)
    mixed = data.problems.assign(variant=["forward", "bwd_data"] * (len(data.problems) // 2))
    with pytest.raises(UserError, match="variant"):
        TILESEER.matrix(mixed, data.candidates, data.problem, data.candidate)
