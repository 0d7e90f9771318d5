"""The implicit GEMM agrees with counting a convolution's multiplications one by one."""

from itertools import product

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileseer.core.errors import UserError
from tileseer.problems import problem
from tileseer.problems.problem import Problem
from tileseer.problems.shapes import implicit_gemm


def gemm(variant, dtype="bf16", **dims):
    table = problem.problem_frame([Problem.from_dims(variant, dtype, **dims)])
    return implicit_gemm(table, variant).iloc[0]


def positions(p):
    """Yield (output position, filter position, input position) of one image, halo included."""
    for out in product(*(range(extent) for extent in p.output)):
        for tap in product(range(p.Z), range(p.Y), range(p.X)):
            steps = zip(
                out, tap, (p.stride_d, p.stride_h, p.stride_w), (p.pad_d, p.pad_h, p.pad_w),
                (p.dilation_d, p.dilation_h, p.dilation_w), strict=True,
            )  # fmt: skip
            yield out, tap, tuple(o * s - pad + t * d for o, t, s, pad, d in steps)


SMALL = {
    "N": st.integers(1, 3), "G": st.integers(1, 3), "Hi": st.integers(1, 9), "Wi": st.integers(1, 9),
    "Y": st.integers(1, 4), "X": st.integers(1, 3), "stride_h": st.integers(1, 4), "stride_w": st.integers(1, 3),
    "pad_h": st.integers(0, 2), "pad_w": st.integers(0, 1), "dilation_h": st.integers(1, 3),
    "Di": st.integers(1, 4), "Z": st.integers(1, 2), "stride_d": st.integers(1, 2),
}  # fmt: skip


@st.composite
def small_problems(draw, variant):
    dims = {name: draw(values) for name, values in SMALL.items()}
    dims |= {name: dims["G"] * draw(st.integers(1, 3)) for name in ("C", "K")}
    try:
        return Problem.from_dims(variant, "bf16", **dims)
    except UserError:
        # Only a filter larger than its image is refused here; a bigger image always has a place for it.
        return Problem.from_dims(variant, "bf16", **(dims | {"Hi": 24, "Wi": 24, "Di": 4}))


@pytest.mark.parametrize("variant", ["forward", "bwd_data", "bwd_weight"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_products_are_those_of_the_multiplications_of_the_convolution(variant, data):
    p = data.draw(small_problems(variant))
    row, all_positions = implicit_gemm(problem.problem_frame([p]), variant).iloc[0], list(positions(p))
    assert row.flops == 2 * p.N * p.K * (p.C // p.G) * len(all_positions)
    if variant != "bwd_data":
        assert 2 * row.gemm_m * row.gemm_n * row.gemm_k * row.gemm_batch * row.sub_gemms == row.flops
        return
    # One product for each residue of the padded input position modulo the stride that a tap of the filter reaches.
    strides, pads = (p.stride_d, p.stride_h, p.stride_w), (p.pad_d, p.pad_h, p.pad_w)
    residues = {tuple((i + pad) % s for i, pad, s in zip(at, pads, strides, strict=True)) for _, _, at in all_positions}
    assert row.sub_gemms == len(residues)


def test_strided_bwd_data_by_hand():
    row = gemm("bwd_data", N=2, G=4, C=8, K=12, Hi=10, Wi=9, Y=3, X=3, stride_h=2, stride_w=2, pad_h=1, pad_w=1)
    assert (row.gemm_m, row.gemm_n, row.gemm_k, row.gemm_batch, row.sub_gemms) == (2 * 5 * 5, 2, 3 * 4, 4, 4)
    dilated = gemm("bwd_data", N=1, C=8, K=8, Hi=10, Wi=10, Y=3, X=3, stride_h=2, dilation_h=2)
    assert dilated.sub_gemms == 1


@pytest.mark.parametrize(
    ("variant", "sizes", "runs"),
    [
        ("forward", (2 * 7 * 7, 6, 4 * 9), (4, 4, 6)),
        ("bwd_data", (2 * 7 * 7, 4, 6 * 9), (6, 4, 4)),
        ("bwd_weight", (6, 4 * 9, 2 * 7 * 7), (6, 4, 4)),
    ],
)
def test_sizes_runs_and_bytes_of_each_direction(variant, sizes, runs):
    row = gemm(variant, N=2, G=2, C=8, K=12, Hi=7, Wi=7, Y=3, X=3, pad_h=1, pad_w=1)
    assert (row.gemm_m, row.gemm_n, row.gemm_k) == sizes
    assert (row.run_a, row.run_b, row.run_c) == runs
    assert (row.input_bytes, row.filter_bytes, row.output_bytes) == (2 * 49 * 8 * 2, 12 * 4 * 9 * 2, 2 * 49 * 12 * 2)
    written = {"forward": row.output_bytes, "bwd_data": row.input_bytes, "bwd_weight": row.filter_bytes}[variant]
    assert row.bytes_written == written
    assert row.bytes_read == row.input_bytes + row.filter_bytes + row.output_bytes - written
    assert (row.is_1x1, row.is_3x3, row.stride1, row.pad0) == (False, True, True, False)


def test_strided_pointwise_filter_reads_a_quarter_of_the_input():
    row = gemm("forward", N=1, C=64, K=64, Hi=8, Wi=8, stride_h=2, stride_w=2)
    assert row.bytes_read == row.input_bytes / 4 + row.filter_bytes


def test_fp32_doubles_the_bytes_and_rows_keep_order_and_index():
    dims = {"N": 1, "C": 16, "K": 16, "Hi": 8, "Wi": 8}
    assert gemm("forward", dtype="fp32", **dims).input_bytes == 2 * gemm("forward", **dims).input_bytes
    table = problem.problem_frame([Problem.from_dims("forward", "bf16", N=n) for n in (5, 3, 9)])
    table.index = pd.Index([7, 1, 4])
    mapped = implicit_gemm(table, "forward")
    assert mapped.index.tolist() == [7, 1, 4]
    assert mapped["gemm_m"].tolist() == [5, 3, 9]
