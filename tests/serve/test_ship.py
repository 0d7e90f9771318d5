"""``tileseer ship``: few kernels that lose little, how few there can be, and the folder that builds them."""

import itertools
import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import learning_samples as samples
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from published_models import PAGE, SMALL_SERVING, evaluation, train_on_recording

from tileseer.cli import main
from tileseer.compile import compiler, hipcc
from tileseer.compile import source_trees as trees
from tileseer.config.compile import CompileSettings
from tileseer.core import cache, documents
from tileseer.core.errors import UserError
from tileseer.kernels.ck_tile import api as ck_api
from tileseer.kernels.library import LIBRARIES
from tileseer.learn import model_files
from tileseer.learn.model import Model
from tileseer.problems.problem import DIMS, Problem, problem_frame
from tileseer.serve import kernel_set, publication, shipping
from tileseer.serve import serving as stage

ROOT = Path(__file__).parents[2]
ARCH, OPERATION = "gfx950_mi355x", "forward_bf16"
TABLES = st.lists(st.lists(st.sampled_from([0.0, 0.5, 0.9, 1.0]), min_size=5, max_size=5), min_size=1, max_size=6).map(
    np.array
)
MAIN = """
#include "selector.hpp"
#include <cstdio>
namespace model = tileseer::forward_bf16_gfx950_mi355x;
int main()
{
    model::Selector selector;
    model::Problem problem;
    for(int c = 8; c <= 512; c *= 2)
        for(int h = 7; h < 60; h += 5)
        {
            problem.N = 8, problem.C = c, problem.K = 2 * c, problem.Hi = h, problem.Wi = h;
            const model::Pick pick = selector.select(problem);
            if(pick.candidate)
                std::puts(pick.candidate->kernel);
        }
}
"""


def alike(table):
    return np.full(len(table), 1 / len(table))


def measured():
    data = samples.measured()
    return replace(data, candidates=data.candidates.assign(code_bytes=np.nan))


def best_of(table, size):
    columns = range(table.shape[1])
    return max(table[:, list(some)].max(axis=1).sum() for some in itertools.combinations(columns, size))


@given(TABLES)
def test_a_set_keeps_its_promise_and_runs_all_that_can_run(table):
    chosen = kernel_set.smallest_set(table, alike(table), 0.1)
    best = table[:, chosen].max(axis=1, initial=0.0)
    assert best.mean() >= 0.9 * table.max(axis=1).mean() - 1e-9
    assert ((best > 0) == (table.max(axis=1) > 0)).all()


def test_an_efficiency_that_is_no_number_ends_the_choice():
    with pytest.raises(UserError, match="efficiencies of 1 problems are no numbers"):
        kernel_set.greedy_order(np.array([[0.5, np.nan], [0.5, 1.0]]))


def test_a_set_needs_next_to_no_more_kernels_than_the_smallest():
    table = np.random.default_rng(3).random((40, 8))
    chosen = kernel_set.smallest_set(table, alike(table), 0.05)
    wanted = 0.95 * table.max(axis=1).sum()
    assert len(chosen) <= next(size for size in range(1, 9) if best_of(table, size) >= wanted) + 1


def test_a_set_is_judged_on_networks_that_it_was_not_chosen_for(tmp_path):
    pool = shipping.KernelPool.of(measured(), tmp_path)
    chosen = pool.smallest(shipping.SetLimits(0.01))
    figures = pool.figures(chosen)
    unseen = (samples.problems()["split"] == "validation").to_numpy() & (pool.efficiency.max(axis=1) > 0)
    assert figures["unseen_problems"] == unseen.sum() and figures["unseen_without_kernel"] == 0
    reached = pool.efficiency[unseen][:, chosen].max(axis=1)
    assert figures["unseen_loss"] == pytest.approx(100 * (1 - reached.mean()), abs=1e-3)
    assert 0 <= figures["loss"] <= 1.0 and figures["costs"] == "estimated"
    losses = [row["loss"] for row in pool.curve(len(chosen))]
    assert losses == sorted(losses, reverse=True) and losses[-1] == 0


def test_what_comes_with_its_library_is_not_compiled(tmp_path):
    pool = shipping.KernelPool.of(replace(measured(), arch="sm_90_cudnn"), tmp_path)
    figures = pool.figures(pool.smallest(shipping.SetLimits(0.01)))
    assert not {"bytes", "compile_seconds", "costs"} & figures.keys()
    assert shipping.set_line(OPERATION, figures, len(pool.names)).endswith("; nothing to compile")
    with pytest.raises(UserError, match="nothing is compiled; use --max-kernels"):
        pool.smallest(shipping.SetLimits(0.01, bytes=1e6))


def test_a_cut_model_loses_what_its_best_kernel_of_the_set_loses(tmp_path):
    data = measured()
    pool, model = shipping.KernelPool.of(data, tmp_path), samples.train(data, samples.product(), samples.SMALL).model
    own = model.with_pool((model.pool["kernel"] == pool.names[0]).to_numpy())
    assert set(own.pool["kernel"]) == {pool.names[0]}
    found = shipping.losses(pool, {"one": own, "all": model}, 1)
    assert found["one"]["loss"] == pytest.approx(100 * (1 - pool.efficiency[pool.judged, 0].mean()), abs=1e-3)
    assert found["all"]["loss"] < found["one"]["loss"]


def test_the_calls_of_networks_say_which_problems_count(tmp_path):
    table = pd.read_csv(samples.CONFIG / "problems/layers.csv").iloc[[0]].assign(network="mine")
    dims = samples.problems()[list(DIMS)].iloc[1]
    table.assign(**dims.to_dict()).to_csv(tmp_path / "layers.csv", index=False)
    weight = shipping.network_weights(measured(), tmp_path / "layers.csv", ["mine"])
    pool = shipping.KernelPool.of(measured(), tmp_path, weight)
    assert np.flatnonzero(pool.weight).tolist() == [1] and len(pool.smallest(shipping.SetLimits(0.01))) == 1


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A published model of part of the MI355X recording, in the results that made it."""
    folder = tmp_path_factory.mktemp("ship") / "results"
    path = folder / "datasets" / ARCH / f"{OPERATION}.parquet"
    data, trained = train_on_recording(path, ARCH, OPERATION, 4, ARCH)
    trained.save(folder / "training")
    served = stage.serve_model(data, trained.model, trained.out_of_fold, SMALL_SERVING)
    served.save(folder / "serving")
    documents.write_document(folder / "serving" / model_files.EVALUATION, evaluation(data))
    # Publishing reads of a report whose it is; no test here reads more.
    documents.write_document(folder / "validation.json", trained.manifest)
    parts = [folder / "training"], [folder / "validation.json"], [folder / "serving"]
    publication.publish_models(*parts, folder / "models" / ARCH, page=PAGE)
    return folder


def ship(results, *words):
    return main.main(["ship", str(results / "models" / ARCH), *map(str, words)])


def test_the_folder_has_the_sources_and_a_selector_of_exactly_the_set(results, tmp_path, capsys):
    out = tmp_path / "out"
    assert ship(results, "--max-loss", "5%", "--output", out, "--json") == 0
    told = json.loads(capsys.readouterr().out)["operations"][OPERATION]
    names = (out / "kernels.txt").read_text().split()
    assert names == sorted(told["kernels"]) and 1 < len(names) < told["pool"]
    for name in names:
        assert name in (out / "kernels" / f"{name}.hpp").read_text()
        assert f"/kernels/{name}.cpp" in (out / "kernels.cmake").read_text()
    lines = (out / "instances/forward/nhwgc_bf16.conf").read_text().splitlines()
    without = (out / "instances/without.txt").read_text().split()
    assert lines and len(lines) + len(without) == len(names) and set(without) < set(names)
    assert all(line.startswith("GroupedConvolutionForwardKernel<2,") for line in lines)
    assert json.loads((out / "figures.json").read_text())["operations"][OPERATION] == told
    (tmp_path / "main.cpp").write_text(MAIN)
    shutil.copyfile(out / OPERATION / model_files.SELECTOR, tmp_path / "selector.hpp")
    program = tmp_path / "main"
    subprocess.run(["g++", "-std=c++17", "-O1", "-I", tmp_path, tmp_path / "main.cpp", "-o", program], check=True)
    picked = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
    assert len(picked) > 50 and set(picked) <= set(names)
    whole = Model.read(results / "models" / ARCH / f"grouped_conv_{OPERATION}_{ARCH}")
    own = whole.with_pool(whole.pool["kernel"].isin(names).to_numpy())
    shapes = [(c, h) for c in (8, 16, 32, 64, 128, 256, 512) for h in range(7, 60, 5)]
    asked = [Problem.from_dims("forward", "bf16", N=8, C=c, K=2 * c, Hi=h, Wi=h) for c, h in shapes]
    best = own.pool["kernel"].to_numpy()[own.predict(problem_frame(asked)).argmax(axis=1)]
    assert np.mean(best == np.array(picked)) > 0.9
    assert ship(results, "--output", out) == 2
    assert "exists and is not empty" in capsys.readouterr().err


def test_four_shipped_kernels_compile_for_real_and_link_with_the_selector_that_picks_them(results, tmp_path):
    try:
        found, tree = compiler.find_compiler(CompileSettings(toolchain="hipcc")), trees.tree_of("hipcc", {"ck": None})
    except UserError as error:
        if "TILESEER_NEEDS_HIPCC" in os.environ:
            raise
        pytest.skip(str(error))
    out = tmp_path / "out"
    level = ck_api.detect_level(ROOT / "config/ck_api.yaml", LIBRARIES["hipcc"].find(None))
    assert ship(results, "--max-kernels", "4", "--ck-api", level, "--output", out) == 0
    names = (out / "kernels.txt").read_text().split()
    units = [f"kernels/{name}.cpp" for name in names]
    assert len(names) == 4 and all(unit in (out / "kernels.cmake").read_text() for unit in units)

    # One unit, as CMake's unity builds: the library's headers are read once. Of the host's code only the names count.
    (out / "unity.cpp").write_text("".join(f'#include "{unit}"\n' for unit in units))
    flags = (*hipcc.FLAGS, "-Xarch_host", "-O0", "--offload-arch=gfx950")

    def run(*arguments):
        done = found.run(arguments, out, 900, 6144)
        assert done.outcome == "ok", done.log[-3000:]

    def compiled():
        run(*flags, "-I", tree.include, "-I", "kernels", "-c", "unity.cpp", "-o", "unity.o")
        return (out / "unity.o").read_bytes()

    texts = [path.read_bytes() for path in sorted((out / "kernels").rglob("*.[ch]pp"))]
    key = cache.key("test ship", found.version, *flags, tree.digest(), *texts)
    (out / "unity.o").write_bytes(cache.Cache(cache.default_folder(), 20 << 30).made_once(key, compiled))
    linked = "".join(f"extern volatile bool _{name}_loaded;" for name in names)
    table = "".join(f'{{"{name}", &ck_tile::generated::_{name}_loaded}},' for name in names)
    program = MAIN.replace("int main()", f"std::map<std::string, volatile bool*> linked{{{table}}};\nint main()")
    program = program.replace("std::puts(", "if(*linked.at(pick.candidate->kernel)) std::puts(")
    (out / "main.cpp").write_text(
        f"#include <map>\n#include <string>\nnamespace ck_tile::generated {{{linked}}}\n{program}"
    )
    stand_in = ROOT / "workflow/native/hip_stand_in.cpp"
    run("-O1", "-fPIC", "-D__HIP_PLATFORM_AMD__", "--cuda-host-only", "-c", stand_in, "-o", "stand_in.o")
    link = ("-x", "none", "unity.o", "stand_in.o", "-o", "main")
    run("-x", "c++", "-std=c++17", "-O1", "-I", OPERATION, "main.cpp", *link)
    picked = subprocess.run([out / "main"], check=True, capture_output=True, text=True).stdout.split()
    assert len(picked) > 50 and set(picked) <= set(names)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-bytes", "7k"], "0 kernels are within the limits"),
        (["--operation", "bwd_data_bf16"], "--operation: bwd_data_bf16 is none of"),
        (["--max-loss", "2"], "is no share between 0 and 1"),
        (["--max-compile", "2"], "is no number with one of s, m, h"),
        (["--layers", "layers.csv"], "--layers layers.csv: name with --networks"),
        (["--networks", "no_such_net"], "there is no network 'no_such_net'"),
    ],
)
def test_mistakes_are_told(results, capsys, words, message):
    with pytest.raises(SystemExit) if message.startswith(("is no", "write")) else pytest.MonkeyPatch.context():
        assert ship(results, *words) == 2
    assert message in capsys.readouterr().err
