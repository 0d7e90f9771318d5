"""Another library, a package of ``tests/packages`` that installs itself, goes through every stage."""

import re
import sys
from importlib.metadata import EntryPoint

import learning_samples as samples
import numpy as np
import pandas as pd
import pytest
from installed import install
from repository import ROOT, SPECS

from tileseer.build.base import CompileUnit, NoToolchain
from tileseer.core import entry_points
from tileseer.core.errors import UserError
from tileseer.learn import features
from tileseer.libraries import candidates, kernel_table, registry
from tileseer.libraries.miopen.kernel import Solver
from tileseer.libraries.names import read_kernel_name
from tileseer.libraries.rule_sets import read_sweep
from tileseer.problems.operation import Operation
from tileseer.problems.problem import Problem, problem_frame
from tileseer.testing.library import LibrarySuite

ARCH, OPERATION = "toy_1", Operation("forward", "bf16")
PRODUCT = samples.MI355X.model_copy(update={"name": "toy_1_board", "arch": ARCH})


@pytest.fixture(scope="module", autouse=True)
def toy(tmp_path_factory):
    """The library, whose package is installed for this process."""
    folder = install("toy_library", tmp_path_factory.mktemp("package"))
    sys.path.insert(0, str(folder))
    registry.installed.cache_clear()
    yield registry.library_of_name("toy")
    sys.path.remove(str(folder))
    registry.installed.cache_clear()


class TestToy(LibrarySuite):
    arch, gpu = ARCH, PRODUCT
    kernels = ("toy_conv_fwd_bf16_2d_16x16", "toy_conv_fwd_bf16_2d_32x64")


@pytest.fixture
def found(tmp_path):
    (tmp_path / "toy.yaml").write_text("sides: [16, 32, 64, 128, 256]\n")
    return read_sweep(tmp_path / "toy.yaml", ARCH).enumerate(SPECS, ARCH, OPERATION, [2, 3])


def test_its_kernels_are_enumerated_and_kept_in_a_table(found):
    assert len(found.kernels) == 38 and {row.rule for row in found.rejected} == {"small"}
    assert kernel_table.kernels_of_rows(kernel_table.tabulate_kernels(found.kernels, found.split_k, 4)) == found.kernels


def test_its_names_are_read_and_mistakes_in_them_told(found):
    listed = [one.name for one in found.kernels]
    assert registry.parse_kernels(listed) == found.kernels
    assert read_kernel_name(f"{listed[0]}.hpp", ARCH).kernel == found.kernels[0]
    with pytest.raises(UserError, match="a data type"):
        read_kernel_name("toy_conv_fwd_fp8_2d_16x16", ARCH)
    with pytest.raises(UserError, match=re.escape("begin with toy_conv_")):
        read_kernel_name("cutlass_conv_fwd_bf16", ARCH)


def test_its_cpp_is_emitted_and_registered(found):
    emitter = registry.emitter_of(found.kernels)(ROOT, ROOT)
    texts = emitter.files(found.kernels, ARCH)
    assert sorted(texts) == sorted(map(emitter.header_file, found.kernels))
    assert f"TOY_KERNEL({found.kernels[0].name})" in emitter.registration_source(found.kernels)


def measured(found):
    """Times of the simulated device, as the dataset has them."""
    names_2d = [one.name for one in found.kernels if one.ndim == 2]
    units = [CompileUnit(kernel, ARCH, b"") for kernel in registry.parse_kernels(names_2d)]
    built = NoToolchain(PRODUCT, samples.COEFFICIENTS).compile(units)
    pool = candidates.with_fields(pd.DataFrame({"kernel": names_2d, "split_k": 1}))
    pool["kernel_id"] = [f"{i:016x}" for i in range(len(pool))]
    for name in candidates.RESOURCES:
        pool[name] = [getattr(result.resources, name) for result in built]
    problems = samples.problems()
    problems = problems[problems["ndim"] == 2].reset_index(drop=True)
    return samples.timed(problems, pool, OPERATION, PRODUCT, ARCH)


def test_it_is_built_asked_timed_learnt_and_ranked(found, toy):
    data = measured(found)
    runs = registry.check_support(data.problems, data.candidates, "forward") == 0
    assert runs.any() and not np.isnan(data.latency_ms).all()
    assert (np.isfinite(data.latency_ms) <= runs.ravel()).all()
    for chosen in ("toy", "reference"):
        pairs = np.zeros(1, int), np.zeros(1, int)
        assert np.isfinite(features.Features.of(chosen, PRODUCT).matrix(data.problems, data.candidates, *pairs)).any()
    settings = samples.SMALL.model_copy(update={"features": toy.feature_set})
    model = samples.train(data, PRODUCT, settings).model
    problem = Problem.from_dims("forward", "bf16", N=4, C=64, K=64, Hi=28, Wi=28, Y=3, X=3)
    ranked = model.pool["kernel"][np.isfinite(model.predict(problem_frame([problem]))[0])]
    assert len(ranked) == len(set(ranked)) > 3 and ranked.str.startswith(toy.prefix).all()


def test_an_unknown_arch_and_a_missing_entry_are_refused():
    with pytest.raises(UserError, match=r"no kernels for the arch 'rdna'; there are gfx90a .*"):
        registry.library_of_arch("rdna")
    with pytest.raises(UserError, match="kernels of miopen are not made or timed here; replay a recording"):
        registry.emitter_of([Solver("forward", "fp32", 2, "fft")])
    with pytest.raises(UserError, match="kernels of one library at a time"):
        registry.library_of_kernels(["cutlass_conv_fwd", "grouped_conv_fwd_bf16"])
    with pytest.raises(ValueError, match="no kernel name"):
        registry.library_of_kernels([])
    assert registry.parse_kernels([]) == []


def test_a_package_that_cannot_be_imported_is_named(monkeypatch):
    broken = EntryPoint("broken", "no_such_package:LIBRARY", registry.GROUP)
    monkeypatch.setattr(entry_points.metadata, "entry_points", lambda group: [broken])
    with pytest.raises(UserError, match=r"entry point broken \(no_such_package:LIBRARY\): No module named"):
        entry_points.load_entry_points(registry.GROUP)
