"""What the emulated GPU executes, and what its results are called."""

from __future__ import annotations

import math

import pytest

from tileseer.kernels.ck_tile.kernel import parse
from tileseer.measure.emulated_problems import REDUCTION_STEPS, tiny_problems
from tileseer.measure.harness.supervisor import Request, Supervisor
from tileseer.problems.problem import Problem


@pytest.mark.parametrize("variant", ["fwd", "bwd_data", "bwd_weight"])
@pytest.mark.parametrize("shape", ["nhwgc_2d", "ndhwgc_3d"])
def test_tiny_problems_reach_the_corners(variant, shape):
    kernel = parse(f"grouped_conv_{variant}_bf16_{shape}_compv3_cshuffle_intrawave_64x64x64_2x2x1_16x16x32")
    pairs = tiny_problems(kernel)
    problems = [problem for problem, _ in pairs]
    assert all(isinstance(p, Problem) and p.variant == kernel.variant and p.ndim == kernel.ndim for p in problems)
    assert {split for _, split in pairs} == {1, 2}
    depth = {"fwd": lambda p: p.C, "bwd_data": lambda p: p.K, "bwd_weight": lambda p: p.N * p.Di * p.Hi * p.Wi}[variant]
    assert [depth(p) // 64 for p in problems[: len(REDUCTION_STEPS)]] == list(REDUCTION_STEPS)
    slices = [depth(p) / 64 / split for p, split in pairs if split > 1 and p.Y * p.X == 1]
    assert slices == list(REDUCTION_STEPS)
    deep = [p for p in problems if p.G > 1 and (p.stride_h > 1 or p.dilation_h > 1) and p.Y * p.X in (3, 4, 5)]
    taps = {"fwd": lambda p: p.C * p.Y * p.X, "bwd_data": lambda p: p.K * p.Y * p.X}
    steps = [
        taps[variant](p) // p.G / 64 if variant in taps else p.N * math.prod(p.output) / 64
        for p in deep
    ]  # fmt: skip
    assert steps == [3, 4, 5]
    for corner in (
        lambda p: p.pad_h, lambda p: p.stride_h > 1, lambda p: p.dilation_h > 1 or p.dilation_d > 1, lambda p: p.G > 1,
        lambda p: p.Y * p.X == 1, lambda p: p.Y > 1 and not p.pad_h,
    ):  # fmt: skip
        assert any(corner(p) for p in problems)
    assert kernel.ndim == 2 or any(p.Z > 1 and p.stride_d > 1 for p in problems)


@pytest.mark.parametrize(
    ("wrong", "races", "status", "error"),
    [
        (0, [], "ok", ""),
        (3, [], "wrong_result", "3 of 64 elements wrong; 0 not finite; worst 3 tolerances"),
        (0, ["race at byte 8"], "race", "race at byte 8"),
        (3, ["race at byte 8", "race at byte 9"], "race", "race at byte 8; 1 more"),
    ],
)
def test_a_race_is_said_before_wrong_elements(monkeypatch, wrong, races, status, error):
    check = {"wrong": wrong, "elements": 64, "not_finite": 0, "worst": 3.0}
    answer = {"code": 0, "error": "", "check": check, "races": races, "opcodes": {"s_endpgm": 1000}}
    supervisor = Supervisor("driver.so")
    monkeypatch.setattr(supervisor, "_ask", lambda request, modules: answer)
    outcome = supervisor.measure(Request((), "kernel", (), {}))
    assert (outcome.status, outcome.error) == (status, error)
