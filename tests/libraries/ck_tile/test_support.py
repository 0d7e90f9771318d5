"""Support rules: each is hit, explained, and asked in order."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from kernel_samples import a_kernel
from repository import GPUS

from tileseer.libraries.ck_tile import kernel
from tileseer.libraries.ck_tile.rules import RULES
from tileseer.libraries.registry import check_support
from tileseer.libraries.rules import signatures
from tileseer.problems import problem
from tileseer.problems.problem import Problem

ASKED = [rule for rule in RULES.every if "arch" not in rule.reads]
NAMES = [rule.name for rule in ASKED]
BASE = a_kernel(vec_a=8)
TAPS = replace(BASE, specialization="filter3x3", vec_a=1, vec_b=1, vec_c=1)
LAYER = {"N": 8, "C": 64, "K": 64, "Hi": 28, "Wi": 28, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}
POINTWISE = {"Y": 1, "X": 1, "pad_h": 0, "pad_w": 0}


def layer(variant="forward", dtype="bf16", **changes):
    return Problem.from_dims(variant, dtype, **(LAYER | changes))


def failed(p, k, split_k=1, **options):
    """Return the names of the rules that fail, and check that ``check`` gives the first of them."""
    report = explain(p, k, split_k, **options)
    assert [name for name, _, _ in report] == NAMES
    names = [name for name, passed, _ in report if not passed]
    table = kernel.frame([k]).assign(split_k=split_k)
    verdict = check_support(problem.problem_frame([p]), table, p.variant, **options)
    assert verdict.dtype == np.uint8
    assert verdict[0, 0] == RULES.names.index(names[0] if names else "")
    return names


def explain(p, k, split_k=1, hardware=None):
    """(rule, passed, reason) of every rule for one pair."""
    table = kernel.frame([k])
    parts = {
        "kernel": RULES.read_of_kernels(table, hardware.wave_size if hardware else 64)
        | {"signature": signatures(table)},
        "problem": RULES.problem_columns(problem.problem_frame([p]), p.variant),
        "split": np.array([split_k]),
    }
    return [(rule.name, bool(np.all(rule.check(parts))), rule.reason) for rule in ASKED]


def variant_of(variant, **changes):
    return replace(BASE, variant=variant, **changes)


CASES = [
    ("operation", layer("bwd_data"), BASE, 1, {}),
    ("operation", layer(dtype="fp16"), BASE, 1, {}),
    ("operation", layer(Di=4, Z=3), BASE, 1, {}),
    ("vector", layer(C=4), BASE, 1, {}),
    ("vector", layer(K=60), BASE, 1, {}),
    ("specialization", layer(), replace(BASE, specialization="filter1x1_pad0"), 1, {}),
    ("specialization", layer(**(POINTWISE | {"pad_h": 1})), replace(BASE, specialization="filter1x1_pad0"), 1, {}),
    ("specialization", layer(stride_w=2, **POINTWISE), replace(BASE, specialization="filter1x1_stride1_pad0"), 1, {}),
    ("specialization", layer(G=64, Y=5, X=5), TAPS, 1, {}),
    ("specialization", layer(G=64, Y=1, X=3), TAPS, 1, {}),
    ("specialization", layer(G=32), replace(TAPS, vec_c=1), 1, {}),
    ("specialization", layer(G=64, Di=4), replace(TAPS, ndim=3, layout="ndhwgc"), 1, {}),
    ("vector", layer(G=16), replace(BASE, num_groups_to_merge=8), 1, {}),
    ("explicit_gemm", layer(stride_h=2, **POINTWISE), replace(BASE, explicit_gemm=True), 1, {}),
    ("merge_groups", layer(G=4), replace(BASE, num_groups_to_merge=8), 1, {}),
    ("split_k", layer(), BASE, 2, {}),
    ("split_k", layer("bwd_weight"), variant_of("bwd_weight", streamk="linear"), 2, {}),
    ("split_k", layer("bwd_weight"), variant_of("bwd_weight"), 129, {}),
    ("slice_of_a_step", layer("bwd_weight", N=1, Hi=14, Wi=14), variant_of("bwd_weight"), 13, {}),
    ("tensor_size", layer(N=256, C=512, K=64, Hi=128, Wi=128), BASE, 1, {}),
    ("sub_gemms", layer("bwd_data", Y=16, X=16, stride_h=16, stride_w=16), variant_of("bwd_data"), 1, {}),
]


@pytest.mark.parametrize(("rule", "p", "k", "split_k", "options"), CASES)
def test_each_rule_is_hit_alone_and_has_a_reason(rule, p, k, split_k, options):
    assert failed(p, k, split_k, **options) == [rule]


def test_every_rule_of_problems_or_slices_has_a_case():
    assert {case[0] for case in CASES} == {rule.name for rule in ASKED if {"problem", "split"} & set(rule.reads)}


@pytest.mark.parametrize(
    ("p", "k", "split_k", "options"),
    [
        (layer(), BASE, 1, {}),
        (layer(Di=4, Z=3), replace(BASE, ndim=3, layout="ndhwgc"), 1, {}),
        (layer(C=4), replace(BASE, vec_a=4, vec_b=4), 1, {}),
        (layer(stride_w=2, **POINTWISE), replace(BASE, specialization="filter1x1_pad0"), 1, {}),
        (layer(**POINTWISE), replace(BASE, specialization="filter1x1_stride1_pad0", explicit_gemm=True), 1, {}),
        (layer(G=64), TAPS, 1, {}),
        (layer("bwd_weight", G=64), replace(TAPS, variant="bwd_weight"), 1, {}),
        (layer(G=64, Di=4, Z=3), replace(TAPS, ndim=3, layout="ndhwgc"), 1, {}),
        (layer(G=8), replace(BASE, num_groups_to_merge=8), 1, {}),
        (layer(), replace(BASE, pipeline="compv5"), 1, {}),
        *(
            (layer(), replace(BASE, pipeline=name, scheduler="interwave"), 1, {})
            for name in ("mem", "basic_v1", "compv1")
        ),
        (layer(), replace(BASE, pipeline="compv4", double_smem_buffer=True), 1, {}),
        (layer("bwd_weight"), variant_of("bwd_weight", streamk="tree", two_stage=True), 1, {}),
        (layer("bwd_weight"), variant_of("bwd_weight"), 16, {}),
        (layer("bwd_weight"), variant_of("bwd_weight", two_stage=True), 129, {}),
        (layer("bwd_weight", N=1, Hi=14, Wi=14), variant_of("bwd_weight"), 12, {}),
        (layer(), replace(BASE, pipeline="compv6"), 1, {}),
        (layer(), BASE, 1, {"hardware": GPUS["gfx1201_9070xt"]}),
        (layer(N=256, C=512, K=64, Hi=128, Wi=128), replace(BASE, split_image=True), 1, {}),
        # Vectors wider than 16 bytes are split: of fp32, four elements have to fit.
        (layer(dtype="fp32", C=4, K=4), replace(BASE, dtype="fp32"), 1, {}),
    ],
)
def test_what_can_run_passes_every_rule(p, k, split_k, options):
    assert failed(p, k, split_k, **options) == []


@pytest.mark.parametrize(
    ("variant", "vectors", "allowed"),
    [
        ("forward", (4, 4, 8), True),
        ("forward", (8, 4, 8), False),
        ("bwd_data", (8, 4, 4), True),
        ("bwd_data", (8, 4, 8), False),
        ("bwd_weight", (8, 4, 4), True),
        ("bwd_weight", (4, 8, 4), False),
    ],
)
def test_vectors_are_held_against_the_operands_of_the_direction(variant, vectors, allowed):
    k = variant_of(variant, vec_a=vectors[0], vec_b=vectors[1], vec_c=vectors[2])
    assert failed(layer(variant, C=4, K=8), k) == ([] if allowed else ["vector"])


def test_the_first_rule_in_order_gives_the_verdict():
    k = replace(BASE, streamk="tree", specialization="filter1x1_pad0", num_groups_to_merge=2)
    assert failed(layer(C=3), k) == ["options_fit_variant", "vector", "specialization", "merge_groups"]


def test_a_grid_is_the_single_pairs_side_by_side():
    """Kernels are decided by class; the classes must not mix kernels that a rule tells apart."""
    same = [(p, k) for _, p, k, split, options in CASES if split == 1 and not options and p.variant == "forward"]
    problems = problem.problem_frame([p for p, _ in same])
    candidates = kernel.frame([k for _, k in same]).assign(split_k=1)
    candidates = pd.concat([candidates, candidates.assign(split_k=4)], ignore_index=True)
    grid = check_support(problems, candidates, "forward")
    assert grid.shape == (len(same), 2 * len(same))
    cells = list(np.ndindex(grid.shape))
    for row, column in cells[:: len(cells) // 97]:
        report = explain(same[row][0], same[column % len(same)][1], int(candidates["split_k"].iloc[column]))
        first = next((name for name, passed, _ in report if not passed), "")
        assert RULES.names[grid[row, column]] == first
