import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileseer.core.errors import UserError
from tileseer.problems import problem as problems
from tileseer.problems.problem import DIMS, Problem


@st.composite
def valid_problems(draw):
    groups = draw(st.integers(1, 8))
    dims = {"N": draw(st.integers(1, 64)), "G": groups}
    for channels in "CK":
        dims[channels] = groups * draw(st.integers(1, 64))
    for image, extent, axis in (("Di", "Z", "d"), ("Hi", "Y", "h"), ("Wi", "X", "w")):
        dims[extent] = draw(st.integers(1, 5))
        dims[f"dilation_{axis}"] = draw(st.integers(1, 3))
        dims[f"stride_{axis}"] = draw(st.integers(1, 3))
        dims[f"pad_{axis}"] = draw(st.integers(0, 3))
        dims[image] = dims[f"dilation_{axis}"] * (dims[extent] - 1) + draw(st.integers(1, 20))
    return Problem.from_dims(draw(st.sampled_from(("forward", "bwd_data", "bwd_weight"))), "bf16", **dims)


def brute_force_extent(size, extent, stride, pad, dilation):
    """Count the positions at which the dilated filter lies inside the padded input."""
    reach = dilation * (extent - 1)
    return sum(1 for start in range(0, size + 2 * pad, stride) if start + reach < size + 2 * pad)


@given(valid_problems())
def test_output_extents_count_the_positions_of_the_filter(p):
    assert p.output == (
        brute_force_extent(p.Di, p.Z, p.stride_d, p.pad_d, p.dilation_d),
        brute_force_extent(p.Hi, p.Y, p.stride_h, p.pad_h, p.dilation_h),
        brute_force_extent(p.Wi, p.X, p.stride_w, p.pad_w, p.dilation_w),
    )


@given(valid_problems(), valid_problems())
def test_keys_are_equal_exactly_for_equal_problems(one, other):
    assert (one.key == other.key) == (one == other)
    assert problems.problems_of_frame(problems.problem_frame([one, other])) == [one, other]


@given(valid_problems(), st.integers(1, 999))
def test_a_layer_family_is_the_layer_at_any_batch_size(p, batch):
    dims = {name: getattr(p, name) for name in DIMS} | {"N": batch}
    other = Problem.from_dims(p.variant, p.dtype, **dims)
    assert other.layer_family == p.layer_family
    wider = Problem.from_dims(p.variant, p.dtype, **(dims | {"C": p.C + p.G}))
    assert wider.layer_family != p.layer_family


@pytest.mark.parametrize(
    ("dims", "told"),
    [
        ({"C": 6, "G": 4, "K": 4}, "C = 6 is not a multiple of G = 4"),
        ({"C": 4, "G": 4, "K": 6}, "K = 6 is not a multiple of G = 4"),
        ({"Hi": 2, "Y": 3}, "output extent along H is 0"),
        ({"N": 0}, "N is 0"),
        ({"pad_h": -1}, "pad_h is -1"),
        ({"N": 2**31}, "N is 2147483648"),
        ({"Q": 1}, "unknown field 'Q'"),
    ],
)
def test_what_is_no_convolution_is_refused_with_field_and_value(dims, told):
    with pytest.raises(UserError, match=told):
        Problem.from_dims("forward", "bf16", **dims)


def test_depth_fields_make_a_problem_3d():
    assert Problem.from_dims("forward", "bf16", Hi=8, Wi=8).ndim == 2
    assert Problem.from_dims("forward", "bf16", Di=2, Hi=8, Wi=8).ndim == 3
    assert Problem.from_dims("forward", "bf16", pad_d=1, Hi=8, Wi=8).ndim == 3
