"""A third family, made of one folder (toy_families/toy) and one line of the registry, goes through every stage."""

import dataclasses
import re
from pathlib import Path

import learning_samples as samples
import numpy as np
import pandas as pd
import pytest

from tileseer.compile.base import CompileUnit
from tileseer.compile.none import NoToolchain
from tileseer.configs import kernel_filter, kernel_table
from tileseer.conv.implicit_gemm import implicit_gemm
from tileseer.conv.operation import Operation
from tileseer.conv.problem import Problem
from tileseer.core.errors import UserError
from tileseer.dataset.measurements import Measurements
from tileseer.devices.simulated import SimulatedDevice, sources
from tileseer.families import candidates, names, registration, registry
from tileseer.families.family import Family
from tileseer.families.support_rules import check
from tileseer.gpu.arch import ArchSpecs
from tileseer.model import features, trainer

ROOT = Path(__file__).parents[2]
TOY = Family(
    "toy", "toy_conv_", "toy_*", features="toy", toolchain="none", header_suffix=".hpp", rule_set="toy.yaml",
    package="toy_families",
)  # fmt: skip
ARCH, OPERATION = "toy_1", Operation("forward", "bf16")
PRODUCT = samples.product().model_copy(update={"name": "toy_1_board", "arch": ARCH})


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(registry, "FAMILIES", (*registry.FAMILIES, TOY))


@pytest.fixture
def found(tmp_path):
    (tmp_path / "toy.yaml").write_text("sides: [16, 32, 64, 128, 256]\n")
    specs = ArchSpecs.load(ROOT / "config/arch_specs.json")
    rules = registry.of_arch(ARCH).part("rules")
    return rules.swept(rules.load(tmp_path / "toy.yaml"), specs, ARCH, OPERATION, [2, 3], [])


def test_its_kernels_are_enumerated_filtered_and_kept_in_a_table(found):
    assert len(found.kernels) == 38 and {row.rule for row in found.rejected} == {"small"}
    assert kernel_table.kernels(kernel_table.table(found.kernels, found.split_k, 4)) == found.kernels
    kept = kernel_filter.narrowed(found, "tile_m == 64 and ndim == 2", "configs.filter").kernels
    assert {one.tile_m for one in kept} == {64}


def test_its_names_are_read_and_mistakes_in_them_told(found):
    listed = [one.name for one in found.kernels]
    assert registry.parse(listed) == found.kernels
    assert names.read(f"{listed[0]}.hpp", ARCH).kernel == found.kernels[0]
    with pytest.raises(UserError, match="a data type"):
        names.read("toy_conv_fwd_fp8_2d_16x16", ARCH)
    with pytest.raises(UserError, match=re.escape("begin with toy_conv_")):
        names.read("cutlass_conv_fwd_bf16", ARCH)


def test_its_cpp_is_emitted_and_registered(found):
    emit = registry.of_arch(ARCH).part("emit")
    texts = emit.files(found.kernels, ARCH, ROOT, ROOT, "")
    assert sorted(texts) == sorted(map(registration.header_file, found.kernels))
    assert f"TOY_KERNEL({found.kernels[0].name})" in registration.source(found.kernels)


def measured(found):
    """Times of the simulated device, as the dataset has them."""
    names_2d = [one.name for one in found.kernels if one.ndim == 2]
    units = [CompileUnit(kernel, ARCH, b"") for kernel in registry.parse(names_2d)]
    built = NoToolchain(PRODUCT, samples.coefficients()).compile(units)
    pool = candidates.with_fields(pd.DataFrame({"kernel": names_2d, "split_k": 1}))
    pool["kernel_id"] = [f"{i:016x}" for i in range(len(pool))]
    for name in candidates.RESOURCES:
        pool[name] = [getattr(result.resources, name) for result in built]
    problems = samples.problems()
    problems = problems[problems["ndim"] == 2].reset_index(drop=True)
    rows, columns = (index.ravel() for index in np.indices((len(problems), len(pool)), dtype=np.int32))
    device = SimulatedDevice(PRODUCT, samples.coefficients(), seed=1)
    times = device.measure(problems, pool, rows, columns)
    flops = implicit_gemm(problems, "forward")["flops"].to_numpy()
    return Measurements(
        arch=ARCH, operation=str(OPERATION), device=device.name, device_kind=device.kind, problems=problems,
        candidates=pool, problem=rows, candidate=columns, status=times.status, latency_ms=times.latency_ms,
        tflops=flops[rows] / (times.latency_ms * 1e9), sentinel=times.sentinel,
    )  # fmt: skip


def test_it_is_built_asked_timed_learnt_and_ranked(found):
    data = measured(found)
    runs = check(data.problems, data.candidates, "forward") == 0
    assert runs.any() and not np.isnan(data.latency_ms).all()
    assert (np.isfinite(data.latency_ms) <= runs.ravel()).all()
    for chosen in ("toy", "reference"):
        pairs = np.zeros(1, int), np.zeros(1, int)
        assert np.isfinite(features.compute(data.problems, data.candidates, *pairs, PRODUCT, chosen)).any()
    settings = samples.SMALL.model_copy(update={"features": TOY.features})
    model = trainer.train(data, PRODUCT, settings).model
    ranked = model.rank(Problem.from_dims("forward", "bf16", N=4, C=64, K=64, Hi=28, Wi=28, Y=3, X=3))
    assert len(ranked) == len(set(ranked["kernel"])) > 3 and (ranked["score"].diff().dropna() <= 0).all()
    assert ranked["kernel"].str.startswith(TOY.prefix).all()


def test_every_family_that_is_compiled_has_the_same_parts():
    made = [family for family in registry.FAMILIES[:-1] if family.toolchain]
    folders = [Path(ROOT, "src/tileseer/families", family.name) for family in made]
    parts = {path.name for path in (Path(__file__).parent / "toy_families/toy").glob("*.py")}
    for folder in folders:
        assert parts <= {path.name for path in folder.glob("*.py")}


def test_families_share_no_prefix_and_no_arch():
    for field in ("name", "prefix", "archs", "features"):
        values = [getattr(family, field) for family in registry.FAMILIES]
        assert not any(a.startswith(b) for a in values for b in values if a is not b)
    assert sources(TOY) == sources(dataclasses.replace(TOY)) and "devices/timing.py" in sources(TOY)
