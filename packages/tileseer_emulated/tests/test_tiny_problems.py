"""What the emulated GPU executes, and what its results are called."""

from __future__ import annotations

import math

import pytest

from tileseer.libraries.ck_tile.kernel import parse
from tileseer.measure.harness.supervisor import Request, Supervisor
from tileseer.problems.problem import Problem
from tileseer_emulated.tiny_problems import EVERYTHING, GRIDS, REDUCTION_STEPS, SLICES, TALL, WIDE, tiny_problems


def sizes(kernel, pair):
    """Rows, columns and steps of the implicit GEMM of a group, in tiles; those at the edges may be parts."""
    p = pair.problem
    pixels, taps = p.N * math.prod(p.output), p.Z * p.Y * p.X
    m, n, k = {
        "forward": (pixels, p.K // p.G, p.C // p.G * taps),
        "bwd_data": (p.N * p.Di * p.Hi * p.Wi, p.C // p.G, p.K // p.G * taps),
        "bwd_weight": (p.K // p.G, p.C // p.G * taps, pixels),
    }[kernel.variant]
    merged = 1 if kernel.variant == "bwd_data" else kernel.num_groups_to_merge
    return merged * m / kernel.tile_m, merged * n / kernel.tile_n, k / kernel.tile_k / pair.split_k


@pytest.mark.parametrize("variant", ["fwd", "bwd_data", "bwd_weight"])
@pytest.mark.parametrize("shape", ["nhwgc_2d", "ndhwgc_3d"])
@pytest.mark.parametrize("tile", ["64x64x64_2x2x1_16x16x32", "16x64x64_1x4x1_16x16x16", "256x32x16_4x1x1_32x32x16"])
@pytest.mark.parametrize("more", ["", "_vec1_1_1", "_gm2"])
def test_tiny_problems_reach_the_corners(variant, shape, tile, more):
    kernel = parse(f"grouped_conv_{variant}_bf16_{shape}_mem_cshuffle_intrawave_{tile}{more}")
    pairs = tiny_problems(kernel)
    problems = [pair.problem for pair in pairs]
    assert all(isinstance(p, Problem) and p.variant == kernel.variant and p.ndim == kernel.ndim for p in problems)
    for split_k in (1, SLICES):
        own = [pair for pair in pairs if pair.split_k == split_k]
        # Each number of steps alone, and with grids of both forms, with parts of tiles at both edges and along k.
        assert [sizes(kernel, pair)[2] for pair in own[: len(REDUCTION_STEPS)]] == list(REDUCTION_STEPS)
        for words, (rows, columns) in zip(GRIDS, (TALL, WIDE), strict=True):
            grids = [sizes(kernel, pair) for pair in own if pair.shows == words]
            tiles = {(math.ceil(m), math.ceil(n)) for m, n, _ in grids}
            assert tiles == {(rows, columns)} or (more == "_gm2" and min(tiles) >= (rows, columns))
            assert {math.ceil(k) for _, _, k in grids} == set(REDUCTION_STEPS)
            assert more == "_gm2" or all(m % 1 and n % 1 for m, n, _ in grids)
            assert any(k % 1 for *_, k in grids)
            assert min(rows, columns) >= 3 and (rows > columns) == (words == GRIDS[0])
        row = [sizes(kernel, pair) for pair in own if pair.shows == "a row of tiles"]
        assert {math.ceil(m) for m, _, _ in row} == {1} and min(math.ceil(n) for _, n, _ in row) > 1
        groups = [pair for pair in own if pair.shows == "a column of tiles, groups"]
        assert {pair.problem.G for pair in groups} == {2 * kernel.num_groups_to_merge}
    for name in EVERYTHING:
        own = [pair.problem for pair in pairs if pair.shows == name]
        assert len(own) == 2 * len(REDUCTION_STEPS)
        for p in own:
            used = [axis for axis in "dhw" if kernel.ndim == 3 or axis != "d"]
            several = [{getattr(p, f"{what}_{axis}") for axis in used} for what in ("stride", "dilation", "pad")]
            assert p.N == 3 and p.G > 1 and all(len(values) == len(used) for values in several)
            assert len({p.Y, p.X, *([p.Z] if kernel.ndim == 3 else [])}) == len(used)
    deep = [sizes(kernel, pair)[2] for pair in pairs if pair.shows.startswith("deep")]
    assert [round(steps) for steps in deep] == [3, 4, 5]
    for corner in (
        lambda p: p.pad_h, lambda p: p.stride_h > 1, lambda p: p.dilation_h > 1 or p.dilation_d > 1, lambda p: p.G > 2,
        lambda p: p.Y * p.X == 1, lambda p: p.stride_h > 1 and p.G > 1,
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
