"""A small world for the tests of learning: some kernels, some problems, times of the simulated device."""

import dataclasses
from functools import cache

import numpy as np
import pandas as pd
from repository import COEFFICIENTS, MI355X

from tileseer.data.dataset import Dataset
from tileseer.facts.model import ModelSettings
from tileseer.judge.ranking import rank_held_out
from tileseer.learn import training
from tileseer.learn.evidence import TIMED, KindLosses
from tileseer.learn.features import Features
from tileseer.learn.learner import Recipe
from tileseer.learn.training import prior_of
from tileseer.libraries import candidates as candidate_tables
from tileseer.libraries.ck_tile import kernel, resources
from tileseer.libraries.ck_tile.kernel import KernelConfig
from tileseer.measure.device import STATUSES
from tileseer.measure.simulated_device import SimulatedDevice
from tileseer.problems import kinds, problem
from tileseer.problems.problem import Problem
from tileseer.problems.shapes import implicit_gemm

SMALL = ModelSettings(n_estimators=12, cv_estimators=6, num_leaves=15, folds=3, rows_per_problem=8, min_child_samples=5)


def changed(**settings):
    """The small settings with others."""
    return ModelSettings(**{**SMALL.model_dump(), **settings})


def kernels(variant="forward"):
    shapes = [
        ((16, 64, 64), (1, 4, 1), (16, 16, 16)),
        ((64, 64, 64), (4, 1, 1), (16, 16, 16)),
        ((64, 128, 64), (2, 2, 1), (32, 32, 16)),
        ((128, 64, 128), (8, 2, 1), (16, 16, 32)),
    ]
    return [
        KernelConfig(
            variant, "bf16", layout, ndim, pipeline, "cshuffle", "intrawave", *tile, *wave, *warp,
            double_smem_buffer=double,
        )
        for ndim, layout in ((2, "nhwgc"), (3, "ndhwgc"))
        for tile, wave, warp in shapes
        for pipeline, double in (("compv3", False), ("compv3", True), ("mem", False))
    ]  # fmt: skip


def candidates(configs, split_k=(1,)):
    table = pd.concat([kernel.frame(configs).assign(split_k=split) for split in split_k], ignore_index=True)
    labels = [candidate_tables.label(n, s) for n, s in zip(table["kernel"], table["split_k"], strict=True)]
    table.insert(0, "candidate", labels)
    table.insert(2, "kernel_id", [f"{i:016x}" for i in range(len(table))])
    estimate = resources.estimate(table, MI355X, COEFFICIENTS)
    return table.assign(aliases="", **{name: estimate[name] for name in ("vgprs", "lds_bytes", "occupancy")})


def problems(variant="forward", count=40):
    found = []
    for i in range(count):
        dims = {
            "N": (1, 4, 32)[i % 3], "C": (32, 64, 256, 8)[i % 4], "K": (64, 128, 512)[i % 3 - i % 2],
            "Hi": 7 + i, "Wi": 7 + i, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1, "stride_h": 1 + i % 2,
            "stride_w": 1 + i % 2,
        }  # fmt: skip
        if i % 5 == 0:
            dims |= {"Di": 4, "Z": 3, "pad_d": 1}
        found.append(Problem.from_dims(variant, "bf16", **dims))
    table = problem.problem_frame(found)
    table["split"] = ["validation" if i % 4 == 3 else "train" for i in range(count)]
    table["network"] = [f"net{i % 2}" for i in range(count)]
    table["layer"] = [f"layer{i}" for i in range(count)]
    return table


@cache
def measured(variant="forward"):
    """All pairs of the small world with the simulated device's times."""
    problem_table = problems(variant)
    candidate_table = candidates(kernels(variant), (1, 4) if variant == "bwd_weight" else (1,))
    return timed(problem_table, candidate_table, f"{variant}_bf16")


def timed(problem_table, candidate_table, operation, gpu=None, arch="gfx950"):
    """The pairs of the two tables that the simulated device could try, with its times."""
    pairs = np.indices((len(problem_table), len(candidate_table)), dtype=np.int32)
    rows, columns = (index.ravel() for index in pairs)
    device = SimulatedDevice(gpu or MI355X, COEFFICIENTS, seed=1)
    times = device.measure(problem_table, candidate_table, rows, columns)
    flops = implicit_gemm(problem_table, problem_table["variant"].iloc[0])["flops"].to_numpy()
    unknown = np.full(len(rows), np.nan)
    every = Dataset(
        arch=arch, operation=str(operation), device=device.name, device_kind=device.kind,
        problems=problem_table, candidates=candidate_table, problem=rows, candidate=columns,
        status=times.status, latency_ms=times.latency_ms, tflops=flops[rows] / (times.latency_ms * 1e9),
        sentinel=times.sentinel, relative_error=unknown, rank=unknown,
    )  # fmt: skip
    return every.only(times.status != STATUSES.index("unsupported"))


def table_of(tflops, split, *, ndim=None, networks=None, statuses=None):
    """Dataset from a hand-written table of TFLOPS [P, Q]; NaN is a missing row."""
    tflops = np.array(tflops, float)
    count, width = tflops.shape
    found = problems(count=count).assign(split=split)
    if networks is not None:
        found["network"] = networks
    pool = candidates(kernels()[:width])
    if ndim is not None:
        found["ndim"] = ndim
        pool["ndim"] = ndim
    rows, columns = (index.astype(np.int32) for index in np.nonzero(~np.isnan(tflops)))
    status = np.zeros(len(rows), np.uint8)
    for (row, column), name in (statuses or {}).items():
        status[(rows == row) & (columns == column)] = STATUSES.index(name)
    speed = np.where(status == 0, tflops[rows, columns], np.nan)
    base, unknown = measured(), np.full(len(rows), np.nan)
    return dataclasses.replace(
        base, problems=found, candidates=pool, problem=rows, candidate=columns, status=status,
        tflops=speed, latency_ms=1 / speed, relative_error=unknown, sentinel=unknown, rank=unknown,
    )  # fmt: skip


def well_known(distances, loss=(1.01, 1.02, 1.03), own_loss=(1.5, 1.5, 1.5), cases=100):
    """Evidence in which the layers of each kind were left out in numbers, with these losses at each distance."""
    names = dict.fromkeys("/".join(leaf.split("/")[:level]) for level in (0, 1, 2) for leaf in kinds.LEAVES)
    rest = {"below_half": [0.0] * 3, "timed": [[1.0] * len(TIMED)] * 3}
    found = [KindLosses(kind=name, cases=cases, loss=list(loss), own_loss=list(own_loss), **rest) for name in names]
    return distances.model_copy(update={"kinds": found})


def with_known_kinds(model, **losses):
    """A model that knows each kind of layers well, as one of a small part of a recording does not."""
    known = well_known(model.spec.evidence, **losses)
    return dataclasses.replace(model, spec=model.spec.model_copy(update={"evidence": known}))


def recipe():
    return Recipe(Features.of(SMALL.features, MI355X), SMALL)


def picked(data, model):
    """Mean efficiency of a model's picks on the problems that were held out."""
    return rank_held_out(model, data).picked.mean()


@cache
def trained():
    """The small world's model."""
    return train(measured(), MI355X, SMALL)


def train(data, gpu, settings, threads=1, coefficients=None, other_dtype=None):
    """Train as the model stage does."""
    prior = prior_of(settings, data.operation, coefficients)
    used = Recipe(Features.of(settings.features, gpu), settings, prior, threads)
    return training.train(data, used, other_dtype)
