"""The simulated device: right by the model's prototype, reproducible pair by pair, noisy as measured."""

from dataclasses import fields, replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from kernel_samples import a_kernel
from repository import COEFFICIENTS, CONFIG, GPUS, MI355X, ROOT, edited

from tileseer.core.errors import UserError
from tileseer.core.places import PACKAGE
from tileseer.libraries.ck_tile import kernel, resources
from tileseer.libraries.costs.coefficients import load_coefficients
from tileseer.measure import device as base
from tileseer.measure.device import STATUSES
from tileseer.measure.simulated_device import CODE_OF_TIMES, SimulatedDevice
from tileseer.problems import problem
from tileseer.problems.problem import Problem

FROZEN = pd.read_csv(ROOT / "tests/data/simulated_truth.csv", keep_default_na=False)
OK, UNSUPPORTED = (STATUSES.index(name) for name in ("ok", "unsupported"))
BASE = a_kernel()


def device(seed=1, launches=10, gpu=MI355X, coefficients=COEFFICIENTS):
    return SimulatedDevice(gpu, coefficients, seed, launches)


def pool(variant="forward"):
    """Return 96 candidates of ten shapes, some of which cannot run."""
    shapes = (((16, 64, 64), (1, 4, 1), (16, 16, 16)), ((64, 128, 64), (2, 2, 1), (32, 32, 16)))
    kernels = [
        replace(
            BASE, variant=variant, pipeline=pipeline, vec_a=vec_a, vec_c=vec_c, double_smem_buffer=pipeline == "compv4",
            **{f"{what}_{axis}": size for what, sizes in zip(("tile", "wave", "warp_tile"), shape, strict=True)
               for axis, size in zip("mnk", sizes, strict=True)},
        )
        for shape, pipeline, vec_a, vec_c in product(
            shapes, ("compv3", "compv4", "compv5", "compv6", "mem", "basic_v1"), (1, 4), (1, 2, 4, 8)
        )
    ]  # fmt: skip
    return kernel.frame(kernels).assign(split_k=1)


def layers(variant="forward", dtype="bf16"):
    """Return 150 problems from microseconds to milliseconds."""
    return problem.problem_frame(
        [
            Problem.from_dims(variant, dtype, N=n, C=c, K=k, Hi=hw, Wi=hw, Y=f, X=f, pad_h=f // 2, pad_w=f // 2)
            for n, c, k, hw, f in product((1, 4, 16, 64, 128), (16, 60, 256), (16, 128), (7, 14, 56, 80, 112), (1,))
            for f in (f, 3)[: 1 + (k == 128)]
        ][:150]
    )


PROBLEMS, CANDIDATES = layers(), pool()
PAIRS = tuple(index.ravel() for index in np.indices((len(PROBLEMS), len(CANDIDATES))))


def measured(seed=1, launches=10, **noise):
    """Return the times of all pairs, which of them ran, and the true times of these; some of the noise may be other."""
    law = COEFFICIENTS.noise.model_copy(update=noise)
    made = device(seed, launches, coefficients=COEFFICIENTS.model_copy(update={"noise": law}))
    times = made.measure(PROBLEMS, CANDIDATES, *PAIRS)
    ran = times.status == OK
    return times, ran, made.truth_us(PROBLEMS, CANDIDATES).ravel()[ran]


def same(left, right, at=slice(None)):
    assert left.error is left.non_zero is None
    for field in fields(base.Times)[:4]:
        np.testing.assert_array_equal(getattr(left, field.name)[at], getattr(right, field.name))


@pytest.mark.parametrize(
    ("product_name", "variant"), sorted(set(zip(FROZEN["product"], FROZEN["variant"], strict=True)))
)
def test_truth_is_the_prototypes(product_name, variant):
    rows = FROZEN[(FROZEN["product"] == product_name) & (FROZEN["variant"] == variant)]
    problems = problem.problem_frame(problem.problems_of_frame(rows))
    candidates = kernel.frame([kernel.parse(name) for name in rows["kernel"]]).assign(
        split_k=rows["split_k"].to_numpy()
    )
    truth = np.diag(device(gpu=GPUS[product_name]).truth_us(problems, candidates))
    np.testing.assert_allclose(truth, pd.to_numeric(rows["truth_us"]).to_numpy(np.float64), rtol=1e-5)


def test_order_subset_and_batches_do_not_change_a_bit():
    whole, *_ = measured()
    assert {OK, UNSUPPORTED} == set(whole.status.tolist())
    order = np.random.default_rng(3).permutation(len(PAIRS[0]))
    for at in (order, order[:37], *([one] for one in order[:5])):
        same(whole, device().measure(PROBLEMS, CANDIDATES, *(index[at] for index in PAIRS)), at)


def test_seed_changes_times_but_not_outcomes():
    (one, ran, _), (again, *_), (other, *_) = (measured(seed) for seed in (1, 1, 2))
    same(one, again)
    np.testing.assert_array_equal(one.status, other.status)
    assert (one.latency_ms[ran] != other.latency_ms[ran]).mean() > 0.95


def test_times_are_whole_clock_ticks_and_only_ok_pairs_have_one():
    times, ran, _ = measured()
    ticks = times.latency_ms[ran] * 1e6 / 4
    np.testing.assert_allclose(ticks, np.round(ticks), atol=1e-3)
    for values in (times.latency_ms, times.latency_cv):
        assert np.isfinite(values[ran]).all() and np.isnan(values[~ran]).all()
    assert set(times.samples[ran]) == {10} and set(times.samples[~ran]) == {0}


def test_noise_is_as_large_as_measured():
    """Two runs of one kernel, by time: see the replicate table in docs/internals/simulated-device.md (rms)."""
    (one, ran, truth), (two, *_) = measured(11), measured(12)
    apart = np.log(one.latency_ms[ran] / two.latency_ms[ran]) / np.sqrt(2)
    for low, high, rms in ((0, 7, 0.032), (7, 12, 0.024), (12, 25, 0.02), (25, 60, 0.011), (60, 1e9, 0.0062)):
        inside = apart[(truth >= low) & (truth < high)]
        assert len(inside) > 500, (low, len(inside))
        assert np.sqrt(np.mean(inside**2)) == pytest.approx(rms, rel=0.25), low


SILENT = dict.fromkeys(("run_relative", "run_us", "launch_relative", "launch_us", "outlier_rate"), 0.0)


def test_a_session_warms_up_and_its_clock_drifts():
    law = COEFFICIENTS.noise
    times, ran, truth = measured(**SILENT, tick_us=1e-6)
    change = np.log(times.latency_ms[ran] * 1000 / truth)
    cold = law.warm_up_pairs / law.session_pairs
    assert change.mean() == pytest.approx(law.warm_up * (1 - cold), abs=1e-4)
    assert change.std() == pytest.approx(
        np.hypot(law.clock_drift / np.sqrt(2), law.warm_up * np.sqrt(cold / 2)), rel=0.2
    )
    assert -law.clock_drift - 1e-5 < change.min() and change.max() < law.clock_drift + law.warm_up + 1e-5


def test_the_sentinel_says_how_far_a_time_drifted():
    times, ran, truth = measured(**SILENT, tick_us=1e-6)
    assert 0.002 < np.ptp(times.sentinel[ran]) < 0.02
    # Over the time at the session's begin, which is the truth but for the wave's phase there.
    ratio = times.latency_ms[ran] * 1000 / truth / times.sentinel[ran]
    assert np.ptp(ratio) < 1e-5
    assert np.isnan(times.sentinel[times.status == UNSUPPORTED]).all()


def test_split_k_helps_a_small_weight_gradient():
    p = problem.problem_frame([Problem.from_dims("bwd_weight", "bf16", N=64, C=64, K=64, Hi=56, Wi=56, Y=3, X=3)])
    candidates = kernel.frame([replace(BASE, variant="bwd_weight")] * 2).assign(split_k=[1, 16])
    one, many = device().truth_us(p, candidates)[0]
    assert many < one / 3


def test_what_breaks_a_rule_or_does_not_fit_is_unsupported():
    p = problem.problem_frame([Problem.from_dims("forward", "bf16", N=1, C=3, K=64, Hi=32, Wi=32)])
    too_big = replace(BASE, tile_m=256, tile_n=256, wave_m=1, vec_a=1, vec_b=1)
    candidates = kernel.frame([BASE, too_big, replace(BASE, vec_a=1, vec_b=1)]).assign(split_k=1)
    assert resources.estimate(candidates, MI355X, COEFFICIENTS)["fault"].ne("").tolist() == [False, True, False]
    times = device().measure(p, candidates, np.zeros(3, int), np.arange(3))
    assert times.status.tolist() == [UNSUPPORTED, UNSUPPORTED, OK]
    assert np.isnan(device().truth_us(p, candidates)[0, :2]).all()


def test_no_pairs_and_no_tables():
    none = np.zeros(0, int)
    assert len(device().measure(PROBLEMS, CANDIDATES, none, none).status) == 0
    assert device().truth_us(PROBLEMS.iloc[:0], CANDIDATES).shape == (0, len(CANDIDATES))


def test_identity_tells_everything_apart_that_changes_a_time():
    other_noise = COEFFICIENTS.model_copy(update={"split_image": 0.5})
    changes = ({}, {"seed": 2}, {"launches": 20}, {"gpu": GPUS["gfx950_mi350x"]}, {"coefficients": other_noise})
    identities = [device(**change).identity() for change in changes]
    assert len(set(identities)) == len(changes)
    assert identities[0] == device().identity()
    assert all(len(text) == 64 for text in identities)
    assert all(any(PACKAGE.parent.glob(pattern)) for pattern in CODE_OF_TIMES)


def test_coefficients_that_give_no_times_are_refused():
    endless = COEFFICIENTS.model_copy(update={"noise": COEFFICIENTS.noise.model_copy(update={"tick_us": 1e99})})
    with pytest.raises(UserError, match=r"a time is 0, no number, or an hour or more; correct config/simulated_device"):
        device(coefficients=endless).measure(PROBLEMS, CANDIDATES, *PAIRS)


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (lambda c: c["noise"].pop("run_us"), "noise.run_us"),
        (lambda c: c["noise"].update(run_us=-1.0), "noise.run_us: .* but it is -1.0"),
        (lambda c: c["pipelines"].pop("mem"), "mem is missing or unknown"),
        (lambda c: c["pipelines"].update(magic=dict(c["pipelines"]["mem"])), "magic is missing or unknown"),
        (lambda c: c["aliases"].update(compv5="compv9"), "aliases.compv5 is 'compv9'"),
        (lambda c: c["directions"].pop("forward"), "directions"),
        (lambda c: c["async_pipelines"].append("magic"), "async_pipelines"),
        (lambda c: c["occupancy"].update(max_threads=2**70), "max_threads: should be less than or equal to 10000"),
    ],
)
def test_mistakes_in_the_coefficients_are_named(tmp_path, edit, named):
    path = edited(CONFIG / "simulated_device.yaml", tmp_path / "coefficients.yaml", edit)
    with pytest.raises(UserError, match=named) as caught:
        load_coefficients(path)
    assert str(path) in str(caught.value)
