"""The reference's features, against a second definition of them, and a loader that works as the reference's does.

The definition here goes row by row in plain Python, as the reference's predictor does; the package's is vectorised.
"""

import json
import math
from pathlib import Path

import learning_samples as samples
import lightgbm
import numpy as np
import pandas as pd
import pytest

from tileseer.core.errors import UserError
from tileseer.facts.model import ModelSettings
from tileseer.learn import training as stage
from tileseer.learn.features import Features
from tileseer.libraries import candidates

ENGINE = ("num_cus", "simds_per_cu", "shader_engines", "max_clock_mhz", "max_waves_per_cu", "wavefront_size",
          "lds_capacity", "l1_cache_kb", "l2_cache_kb", "l3_cache_kb", "num_xcd")  # fmt: skip
CODES = {"compv3": 0, "compv4": 1, "compv5": 2, "mem": 3, "preshufflev2": 4, "basic_v1": 5, "compv6": 6}
BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
DIMS = ("N", "C", "K", "G", "Di", "Hi", "Wi", "Z", "Y", "X", "stride_d", "stride_h", "stride_w", "pad_d", "pad_h",
        "pad_w", "dilation_d", "dilation_h", "dilation_w")  # fmt: skip
REFERENCE = Features.of("reference", samples.MI355X)


def log2(value):
    return math.log2(max(value, 1))


def row_features(row, hw):
    """The 97 values of one pair by name, in the reference's order; ``row`` has a problem and a kernel."""
    r = row
    deep = r["Di"] > 1 or r["Z"] > 1 or r["pad_d"] > 0
    out = {}
    for axis, image, extent in (("d", "Di", "Z"), ("h", "Hi", "Y"), ("w", "Wi", "X")):
        reach = (r[extent] - 1) * r[f"dilation_{axis}"] + 1
        out[axis] = (r[image] + 2 * r[f"pad_{axis}"] - reach) // r[f"stride_{axis}"] + 1
    do = out["d"] if deep else 1
    v_in = (r["Di"] if deep else 1) * r["Hi"] * r["Wi"]
    v_f = (r["Z"] if deep else 1) * r["Y"] * r["X"]
    v_out = do * out["h"] * out["w"]
    cpg, opg, bpe = r["C"] / r["G"], r["K"] / r["G"], BYTES[r["dtype"]]
    flops = 2 * r["N"] * r["K"] * v_out * cpg * v_f
    moved = bpe * (r["N"] * r["C"] * v_in + r["K"] * cpg * v_f + r["N"] * r["K"] * v_out)
    bs, gm, gn = r["block_size"], r["gemm_m_per_block"], r["gemm_n_per_block"]
    pipe = r["pipeline"]
    lds = (gm + gn) * bs * bpe
    m, n, k = r["N"] * v_out, r["K"], int(cpg * v_f)
    tiles = {"m": math.ceil(m / gm), "n": math.ceil(n / gn), "k": math.ceil(k / bs)}
    fill = {a: (s % t) / t if s % t else 1.0 for a, s, t in (("m", m, gm), ("n", n, gn), ("k", k, bs))}
    return {
        **{name: r[name] for name in ("N", "C", "K", "G", "Hi", "Wi", "Y", "X")},
        **{name: r[name] for name in ("stride_h", "stride_w", "pad_h", "pad_w")},
        "Ho": out["h"], "Wo": out["w"],
        **{f"log2_{name}": log2(r[name]) for name in ("N", "C", "K", "G", "Hi", "Wi")},
        "log2_spatial": log2(v_in), "log2_filter": log2(v_f), "log2_output": log2(v_out),
        "arithmetic_intensity": flops / moved, "filter_area": v_f,
        "is_1x1_conv": r["Y"] == r["X"] == r["Z"] == 1,
        "is_3x3_conv": r["Y"] == r["X"] == 3 and (r["Z"] == 3 or not deep),
        "channels_per_group": cpg, "aspect_ratio_hw": r["Hi"] / r["Wi"], "aspect_ratio_filter": r["Y"] / r["X"],
        "is_3d": deep, "Di": r["Di"], "Z": r["Z"], "Do": do, "stride_d": r["stride_d"], "pad_d": r["pad_d"],
        "dilation_h": r["dilation_h"], "dilation_w": r["dilation_w"],
        "log2_channels_per_group": log2(cpg), "log2_output_channels_per_group": log2(opg),
        "is_depthwise": r["G"] == r["C"] == r["K"], "group_density": r["G"] / r["C"],
        "is_small_group": cpg < 16 or opg < 16, "channels_product_per_group": cpg * opg,
        "batch_group_product": r["N"] * r["G"], "is_small_batch_grouped": r["N"] < 8 and r["G"] > 1,
        "block_size": bs, "gemm_m_per_block": gm, "gemm_n_per_block": gn, "pipeline": CODES.get(pipe, 0),
        "num_warps": bs / 4, "tile_volume": gm * gn * bs, "tile_mn": gm * gn, "lds_usage_estimate": lds,
        "lds_usage_ratio": lds / (32768 if pipe == "compv4" else hw["lds_capacity"]),
        "block_tile_ratio_m": gm / bs, "block_tile_ratio_n": gn / bs, "block_efficiency": min(gm, gn) / max(gm, gn),
        "is_compv3": pipe == "compv3", "is_compv4": pipe == "compv4", "is_compv5": pipe == "compv5",
        "is_intrawave": r["wave_mode"] == "intrawave", "has_dsb": r["has_dsb"], "has_si": r["has_si"],
        "is_basic": pipe.startswith("basic_v"), "is_compv6": pipe == "compv6", "is_mem": pipe == "mem",
        "gemm_m_output": m, "gemm_n_output": n, "gemm_k_output": k,
        **{f"num_tiles_{a}": tiles[a] for a in "mnk"}, "total_output_tiles": tiles["m"] * tiles["n"],
        **{f"tile_eff_{a}": fill[a] for a in "mnk"},
        "overall_tile_efficiency": fill["m"] * fill["n"] * fill["k"],
        "cu_utilization": tiles["m"] * tiles["n"] / hw["num_cus"],
        "ratio_gemm_m_to_tile_m": m / gm, "ratio_gemm_n_to_tile_n": n / gn, "ratio_gemm_k_to_tile_k": k / bs,
        "problem_smaller_than_tile_m": m < gm, "problem_smaller_than_tile_n": n < gn,
        "problem_smaller_than_tile_k": k < bs,
        "hw_num_cus": hw["num_cus"], "hw_simds_per_cu": hw["simds_per_cu"],
        "hw_total_simds": hw["num_cus"] * hw["simds_per_cu"],
        **{f"hw_{name}": hw[name] for name in ENGINE[2:]},
    }  # fmt: skip


class ReferencePredictor:
    """Reads a model directory and ranks as the reference's predictor is described to do."""

    def __init__(self, folder: Path) -> None:
        spec = json.loads((folder / "feature_spec.json").read_text())
        assert spec["op_type"] == "grouped_conv"
        assert spec.get("feature_encoding_version", 0) == 0
        assert set(spec["hardware"]) <= set(ENGINE), "an unknown argument of the feature engine's constructor"
        self.hardware = spec["hardware"]
        self.names = spec["feature_names"]
        self.logged = "tflops" in spec["log_targets"]
        self.booster = lightgbm.Booster(model_file=str(folder / "model_tflops.lgbm"))

    def rank(self, problem, kernels):
        """(name, value), best first; equal values keep the order of the pool."""
        rows = [row_features({**problem, **kernel}, self.hardware) for kernel in kernels]
        matrix = np.array([[float(row[name]) for name in self.names] for row in rows])
        values = self.booster.predict(matrix, num_threads=1)
        values = np.expm1(values) if self.logged else values
        order = np.argsort(-values, kind="stable")
        return [(kernels[i]["kernel_name"], values[i]) for i in order]


def as_the_reference_stores(kernel):
    """A kernel of our pool in the reference's fields; its converter shifts the tile by one name."""
    return {
        "kernel_name": kernel["candidate"], "block_size": int(kernel["tile_m"]),
        "gemm_m_per_block": int(kernel["tile_n"]), "gemm_n_per_block": int(kernel["tile_k"]),
        "pipeline": kernel["pipeline"], "wave_mode": kernel["scheduler"],
        "has_dsb": int(kernel["double_smem_buffer"]), "has_si": int(kernel["split_image"]),
    }  # fmt: skip


def problem_of(row):
    return {**{name: int(row[name]) for name in DIMS}, "dtype": row["dtype"]}


@pytest.mark.parametrize("variant", ["forward", "bwd_data", "bwd_weight"])
def test_every_value_is_that_of_the_second_definition(variant):
    data = samples.measured(variant)
    chosen = np.random.default_rng(0).permutation(len(data.problem))[:300]
    rows, columns = data.problem[chosen], data.candidate[chosen]
    # Of each pipeline one kernel, as far as there are kernels, and two pipelines that the reference does not know.
    pipelines = np.resize([*CODES, "wavelet", "comp_async"], len(data.candidates))
    pool = data.candidates.assign(pipeline=pipelines)
    found = REFERENCE.matrix(data.problems, pool, rows, columns)
    assert found.dtype == np.float64
    hardware = {
        "num_cus": 256, "simds_per_cu": 4, "shader_engines": 32, "max_clock_mhz": 2400, "max_waves_per_cu": 32,
        "wavefront_size": 64, "lds_capacity": 163840, "l1_cache_kb": 32, "l2_cache_kb": 4096,
        "l3_cache_kb": 262144, "num_xcd": 8,
    }  # fmt: skip
    problems, kernels = data.problems.to_dict("records"), pool.to_dict("records")
    names = REFERENCE.names
    assert len(names) == 97
    for values, problem, kernel in zip(found, rows, columns, strict=True):
        expected = row_features({**problem_of(problems[problem]), **as_the_reference_stores(kernels[kernel])}, hardware)
        assert tuple(expected) == names
        np.testing.assert_array_equal(values, np.array(list(expected.values()), float))


def test_cutlass_kernels_have_what_the_reference_can_say_of_them():
    names = [
        f"cutlass_conv_fwd_bf16_nhwc_2d_{loop}_128x64x32_2x2x1_16x8x16_{stages}_swz1_vec8_8_8"
        for loop, stages in (("optimized", "s4"), ("analytic", "s4"), ("optimized", "s6"), ("optimized", "s4"))
    ]
    pool = candidates.with_fields(pd.DataFrame({"kernel": names, "split_k": [1, 1, 1, 16]}))
    index = np.arange(len(pool))
    matrix = REFERENCE.matrix(samples.measured().problems, pool, np.zeros_like(index), index)
    found = pd.DataFrame(matrix, columns=REFERENCE.names)
    assert (found[["block_size", "gemm_m_per_block", "gemm_n_per_block"]] == [128, 64, 32]).all(axis=None)
    assert found["pipeline"].nunique() == 3 and (found["has_dsb"] == 1).all() and (found["is_compv4"] == 0).all()
    # It has no word for split-K, in either family.
    assert (found.iloc[0] == found.iloc[3]).all()


def test_the_directory_ranks_in_the_reference_predictor_as_it_does_here(tmp_path):
    data = samples.measured()
    settings = ModelSettings(**{**samples.SMALL.model_dump(), "features": "reference"})
    trained = samples.train(data, samples.MI355X, settings)
    trained.save(tmp_path)
    theirs = ReferencePredictor(tmp_path)
    pool = trained.model.pool
    kernels = [as_the_reference_stores(kernel) for kernel in pool.to_dict("records")]
    # The reference's features cannot tell all kernels apart: equal scores are part of the test.
    for row in range(0, len(data.problems), 3):
        index = np.full(len(pool), row), np.arange(len(pool))
        scores = trained.model.score_pairs(data.problems, *index)
        ours = pool["candidate"].to_numpy()[np.argsort(-scores, kind="stable")]
        ranked = theirs.rank(problem_of(data.problems.iloc[row]), kernels)
        assert [name for name, _ in ranked] == ours.tolist()
        np.testing.assert_allclose(np.log1p([value for _, value in ranked]), np.sort(scores)[::-1], atol=1e-12)


def test_several_values_of_split_k_are_refused_because_the_features_do_not_see_them():
    settings = samples.SMALL.model_copy(update={"features": "reference"})
    assert stage.settings_for(settings, samples.measured()).features == "reference"
    with pytest.raises(UserError, match="split_k in the rule set"):
        stage.settings_for(settings, samples.measured("bwd_weight"))
