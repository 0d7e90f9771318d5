"""A kernel family as small as one can be: square tiles, one main loop, one rule of each sort."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np
import pandas as pd

from tileseer.config.operations import VARIANTS
from tileseer.kernels import registry
from tileseer.kernels.costs.cost_models import COST_MODELS
from tileseer.kernels.costs.resources import RESOURCES
from tileseer.kernels.costs.timing import KernelTerms
from tileseer.kernels.emission import EMITTERS
from tileseer.kernels.emitter import Emitter
from tileseer.kernels.enumeration import Count, Sweep, sift
from tileseer.kernels.features import gemm
from tileseer.kernels.features import reference as upstream
from tileseer.kernels.gemm_kernel import GemmKernel
from tileseer.kernels.grammar import Part
from tileseer.kernels.registry import Family, registration_source
from tileseer.kernels.rule_sets import SWEEPS
from tileseer.kernels.rules import OPERATION, Rule, SupportRules, broken_rules, vectors_divide_runs
from tileseer.kernels.support import SUPPORT
from tileseer.learn import features
from tileseer.problems import implicit_gemm


@dataclass(frozen=True, order=True)
class ToyKernel(GemmKernel):
    """A block of one wave, with a tile of ``tile_m`` x ``tile_n``."""

    variant: str
    dtype: str
    ndim: int
    tile_m: int
    tile_n: int
    tile_k: int = 32
    wave_m: int = 1
    wave_n: int = 1
    wave_k: int = 1
    warp_tile_m: int = 16
    warp_tile_n: int = 16
    warp_tile_k: int = 16
    vec_a: int = 4
    vec_b: int = 4
    vec_c: int = 4
    pipeline: ClassVar[str] = "simple"
    choices: ClassVar = {"variant": VARIANTS, "dtype": ("bf16",), "ndim": (2, 3)}

    parts: ClassVar = (
        Part("toy_conv_", "toy_conv_"),
        Part("a direction", "{variant}_"),
        Part("a data type", "{dtype}_"),
        Part("the dimensionality", "{ndim}d_"),
        Part("the tile", "{tile_m}x{tile_n}"),
    )


TOY = Family(
    "toy",
    "toy_*",
    ToyKernel,
    features="toy",
    toolchain="none",
    header_suffix=".hpp",
    launcher="toy_kernel.hpp",
    registration="TOY_KERNEL({name})",
    rule_set="toy.yaml",
)


SMALL = Rule("small", "a tile of {area} elements; at most 8192", lambda p, k: k["area"] <= 8192)


class ToySweep(Sweep):
    """Sides of tiles; a tile has at most 8192 elements."""

    sides: list[Count]

    def enumerate(self, specs, arch, operation, ndims, included=()):
        shapes = product(ndims, self.sides, self.sides)
        made = [ToyKernel(operation.variant, operation.dtype, *shape) for shape in shapes]
        columns = {"area": np.array([kernel.tile_m * kernel.tile_n for kernel in made])}
        return sift(made, broken_rules([SMALL], columns), [1], f"on {arch} for {operation}")


class ToyEmitter(Emitter):
    """One header per kernel."""

    pattern = "*.none"

    @staticmethod
    def entries(names, api, arch):
        return [{"kernel": name, "header": f"{name}.hpp", "registry_key": {"name": name}} for name in names]

    def paths(self, kernel):
        return [f"{kernel.name}.hpp"]

    def kernel_files(self, kernel, arch):
        text = f"// {arch}\nusing {kernel.name} = Toy<{kernel.tile_m}, {kernel.tile_n}>;\n"
        return {f"{kernel.name}.hpp": text}

    def collection_files(self, kernels, arch, chunk_size=0):
        return {"library.cpp": registration_source(kernels)}


def _read_of_problems(dims, variant, element_size):
    sizes = implicit_gemm.gemm_columns(dims, variant, element_size)
    return {"G": dims["G"]} | {f"run_{x}": sizes[f"run_{x}"].astype(np.int64) for x in "abc"}


TOY_SUPPORT = SupportRules(
    (OPERATION, Rule("vector", "a vector width does not divide the channels", vectors_divide_runs)),
    lambda candidates, wave_size: candidates[["vec_a", "vec_b", "vec_c"]].copy(),
    _read_of_problems,
)


def estimate(candidates, hardware, coefficients):
    """Registers of the accumulators, and one buffer of LDS."""
    area = candidates["tile_m"] * candidates["tile_n"]
    edges = candidates["tile_m"] + candidates["tile_n"]
    return pd.DataFrame(
        {"vgprs": area / hardware.wave_size, "lds_bytes": edges * 64, "occupancy": np.ones(len(area)), "fault": ""},
        index=candidates.index,
    )


def terms(problems, candidates, variant, hardware, coefficients):
    """A block costs its tile's area."""
    verdicts, classes = TOY_SUPPORT.check_classes(problems, candidates, variant, hardware)
    m, n = (candidates[name].to_numpy(float) for name in ("tile_m", "tile_n"))
    one, none = np.ones(len(candidates)), np.zeros(len(candidates))
    columns = {"tile_m": m, "tile_n": n, "tile_k": candidates["tile_k"].to_numpy(), "address_share": one / 2}
    columns |= {"step_latency": 500 + m * n / 8, "step_cost": m * n / 8, "ends_latency": 1000 + m * n}
    columns |= dict.fromkeys(("num_groups_to_merge", "occupancy", "split_k"), one) | {"ends_cost": m * n}
    columns |= dict.fromkeys(("streamk", "two_stage", "split_image"), none)
    ids, shape = (1000 * m + n).astype(np.uint64), np.log2(np.stack([m, n]))
    return KernelTerms(columns, ids, shape, fits=one > 0, verdicts=verdicts, classes=classes)


def _feature_columns(candidates, hardware):
    none = {"num_groups_to_merge": np.ones(len(candidates)), "streamk": np.zeros(len(candidates))}
    return gemm.with_loads(gemm.numbers(candidates) | none, candidates, hardware)


def _in_reference_words(candidates):
    return candidates.assign(scheduler="intrawave", double_smem_buffer=False, split_image=False)


def register(monkeypatch):
    """Enter the family into the table of each subject, until the test ends."""
    monkeypatch.setattr(registry, "FAMILIES", (*registry.FAMILIES, TOY))
    for table, entry in (
        (SWEEPS, ToySweep),
        (EMITTERS, ToyEmitter),
        (SUPPORT, TOY_SUPPORT),
        (RESOURCES, estimate),
        (COST_MODELS, terms),
        (upstream.REFERENCE_WORDS, ({"simple": 1}, _in_reference_words)),
        (
            features.FEATURE_SETS,
            gemm.feature_set((*gemm.TILES, *gemm.SPLIT_K, *gemm.BUILT), _feature_columns),
        ),
    ):
        monkeypatch.setitem(table, "toy", entry)
