"""Which results of a plan count as right: those near exact arithmetic, wherever an element stands."""

import math

import pytest

torch = pytest.importorskip("torch")

from tileseer.problems.problem import Problem  # noqa: E402
from tileseer.torch.reference import GUARD_ELEMENTS, Reference  # noqa: E402

CASES = {
    "512 rows": {"N": 1, "C": 8, "K": 8, "Hi": 512, "Wi": 6, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1},
    "odd and strided": {"N": 8, "C": 6, "K": 9, "G": 3, "Hi": 11, "Wi": 7, "Y": 3, "X": 2, "stride_h": 2, "pad_w": 1},
    "depthwise volume": {
        "N": 4, "C": 5, "K": 10, "G": 5, "Di": 4, "Hi": 6, "Wi": 5, "Z": 3, "Y": 3, "X": 1,
        "pad_d": 2, "pad_h": 1, "dilation_d": 2,
    },
    "one channel": {"N": 5, "C": 1, "K": 4, "Hi": 9, "Wi": 1, "Y": 3, "X": 1, "pad_h": 1},
    "1x1 with borders": {"N": 11, "C": 16, "K": 1, "Hi": 5, "Wi": 5, "pad_h": 1, "pad_w": 1, "stride_w": 3},
}  # fmt: skip
DIRECTIONS = ("forward", "bwd_data", "bwd_weight")


def exact(problem, x, w, y):
    """The result of a direction in fp64, in the shape of the operand that it is written to."""
    axes = "dhw"[3 - problem.ndim :]
    sizes = {name: [getattr(problem, f"{name}_{axis}") for axis in axes] for name in ("stride", "pad", "dilation")}
    geometry = sizes["stride"], sizes["pad"], sizes["dilation"], False, [0] * problem.ndim, problem.G
    x, w, y = x.double(), w.double(), y.double()
    if problem.variant == "forward":
        return torch.ops.aten.convolution(x, w, None, *geometry)
    mask = [problem.variant == "bwd_data", problem.variant == "bwd_weight", False]
    return next(one for one in torch.ops.aten.convolution_backward(y, x, w, None, *geometry, mask) if one is not None)


def error(variant, case, plan, dtype="bf16"):
    """What ``Reference`` says of a plan: a function of the exact result and of the tensor that it writes."""
    problem = Problem.from_dims(variant, dtype, **CASES[case])
    reference = Reference(problem, torch.device("cpu"), lambda function: function())

    def launch(x, w, y):
        result = {"forward": y, "bwd_data": x, "bwd_weight": w}[variant]
        assert all(one.movedim(1, -1).is_contiguous() and one.data_ptr() % 16 == 0 for one in (x, w, y))
        plan(exact(problem, x, w, y), result)

    return reference.error(launch)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("variant", DIRECTIONS)
@pytest.mark.parametrize("case", CASES)
def test_an_exact_result_that_is_rounded_is_right(variant, case, dtype):
    assert error(variant, case, lambda value, result: result.copy_(value), dtype) < 0.05


def nothing(value, result):
    """Leave it as it was."""


def zeros(value, result):
    result.zero_()


def last_row(value, result):
    result.copy_(value)
    result.select(2, -1).zero_()


def one_middle_element(value, result):
    result.copy_(value)
    index = tuple(size // 2 for size in result.shape)
    result[index] = value[index] + 0.2 * value.square().mean().sqrt()


def middle_images(value, result):
    result.copy_(value)
    result[1 + len(result) // 4 : -1] *= 1.02


def images_in_another_order(value, result):
    result.copy_(value.roll(3, 0))


def two_channels_changed(value, result):
    order = torch.arange(value.shape[1])
    order[[0, -1]] = order[[-1, 0]]
    result.copy_(value[:, order])


def scaled(value, result):
    result.copy_(1.02 * value)


def infinite(value, result):
    result.copy_(value)
    result[(0,) * result.ndim] = math.inf


def element_outside(offset):
    def plan(value, result):
        result.copy_(value)
        at = -1 if offset < 0 else result.numel()
        torch.as_strided(result, (1,), (1,), result.storage_offset() + at + offset * 100).fill_(0.5)

    return plan


WRONG = {
    "nothing": nothing, "zeros": zeros, "last row": last_row, "one element": one_middle_element, "scaled": scaled,
    "infinite": infinite, "before": element_outside(-1), "behind": element_outside(1),
}  # fmt: skip


@pytest.mark.parametrize("variant", DIRECTIONS)
@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_element_anywhere_and_a_write_outside_are_found(variant, fault):
    assert error(variant, "512 rows", WRONG[fault]) > 1
    assert error(variant, "depthwise volume", WRONG[fault]) > 1


@pytest.mark.parametrize("variant", ["forward", "bwd_data"])
@pytest.mark.parametrize("plan", [middle_images, images_in_another_order, two_channels_changed])
def test_images_in_the_middle_and_places_that_change_are_found(variant, plan):
    assert error(variant, "odd and strided", plan) > 1


def test_a_summand_that_is_left_out_is_found():
    problem = Problem.from_dims("bwd_weight", "bf16", N=512, C=4, K=4, Hi=4, Wi=4)
    reference = Reference(problem, torch.device("cpu"), lambda function: function())
    for image in (0, 255, 511):

        def launch(x, w, y, image=image):
            y = y.clone()
            y[image] = 0.0
            w.copy_(exact(problem, x, w, y))

        assert reference.error(launch) > 1


def test_partial_sums_in_fp32_are_right_in_any_order():
    problem = Problem.from_dims("bwd_weight", "bf16", N=128, C=8, K=8, Hi=28, Wi=28, Y=3, X=3, pad_h=1, pad_w=1)
    reference = Reference(problem, torch.device("cpu"), lambda function: function())

    def launch(x, w, y):
        parts = [exact(problem, one, w, other).float() for one, other in zip(x.split(1), y.split(1), strict=True)]
        w.copy_(sum(parts))

    assert reference.error(launch) < 0.1


def test_operands_are_the_same_each_time_and_leave_the_programs_random_numbers_alone():
    problem, seen = Problem.from_dims("forward", "bf16", **CASES["odd and strided"]), []
    before = torch.get_rng_state()
    for _ in range(2):
        reference = Reference(problem, torch.device("cpu"), lambda function: function())
        reference.error(lambda x, w, y: seen.append((x.clone(), w.clone())))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(seen[0][0], seen[1][0]) and torch.equal(seen[0][1], seen[1][1])
    assert GUARD_ELEMENTS * 2 % 256 == 0
