"""``tileseer ship``: few kernels that lose little, how few there can be, and the folder that builds them."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import learning_samples as samples
import numpy as np
import pandas as pd
import pytest
from cpp_selectors import picks_of_cpp
from hypothesis import given
from hypothesis import strategies as st
from published_models import PAGE, SMALL_SERVING, publish_results, train_on_recording, write_evaluation
from repository import CONFIG, ROOT

from tileseer.cli import main
from tileseer.core import documents
from tileseer.learn import model_files
from tileseer.learn.model import Model
from tileseer.libraries.ck_tile.emit import CkTileEmitter
from tileseer.libraries.ck_tile.kernel import KernelConfig
from tileseer.libraries.registry import library_of_arch
from tileseer.problems.problem import DIMS, Problem, problem_frame
from tileseer.serve import kernel_set, publication, shipping
from tileseer.serve import serving as stage
from tileseer.serve.serving_files import Kernels

ARCH, OPERATION = "gfx950_mi355x", "forward_bf16"
TABLES = st.lists(st.lists(st.sampled_from([0.0, 0.5, 0.9, 1.0]), min_size=5, max_size=5), min_size=1, max_size=6).map(
    np.array
)


def alike(table):
    return np.full(len(table), 1 / len(table))


def measured():
    data = samples.measured()
    return replace(data, candidates=data.candidates.assign(code_bytes=np.nan))


def pool_of(data, **more):
    return shipping.KernelPool.of(data, data.candidates["candidate"], **more)


@pytest.mark.parametrize("floor", [0.0, 0.7])
@given(table=TABLES)
def test_a_set_keeps_its_promise_and_runs_all_that_can_run(table, floor):
    chosen = kernel_set.smallest_set(table, alike(table), 0.1, floor=floor)
    best, possible = table[:, chosen].max(axis=1, initial=0.0), table.max(axis=1)
    assert best.mean() >= 0.9 * possible.mean() - 1e-9
    assert ((best > 0) == (possible > 0)).all()
    assert (best >= floor * possible).all()


def test_a_set_is_judged_on_networks_that_it_was_not_chosen_for():
    pool = pool_of(measured())
    chosen = pool.smallest(0.01)
    figures = pool.figures(chosen)
    unseen = (samples.problems()["split"] == "validation").to_numpy() & (pool.efficiency.max(axis=1) > 0)
    assert figures["unseen_problems"] == unseen.sum() and figures["unseen_without_kernel"] == 0
    reached = pool.efficiency[unseen][:, chosen].max(axis=1)
    assert figures["unseen_loss"] == pytest.approx(100 * (1 - reached.mean()), abs=1e-3)
    assert 0 <= figures["loss"] <= 1.0 and figures["bytes_from"] == "estimated"
    losses = [row["loss"] for row in pool.curve(chosen)]
    assert losses == sorted(losses, reverse=True) and losses[-1] == 0


def test_a_cut_model_loses_what_its_best_kernel_of_the_set_loses():
    data = measured()
    pool, model = pool_of(data), samples.train(data, samples.MI355X, samples.SMALL).model
    own = model.with_pool((model.pool["kernel"] == pool.names[0]).to_numpy())
    assert set(own.pool["kernel"]) == {pool.names[0]}
    found = shipping.losses(pool, {"one": own, "all": model})
    assert found["one"]["loss"] == pytest.approx(100 * (1 - pool.efficiency[pool.judged, 0].mean()), abs=1e-3)
    assert found["all"]["loss"] < found["one"]["loss"]


def test_the_calls_of_networks_say_which_problems_count(tmp_path):
    table = pd.read_csv(CONFIG / "problems/layers.csv").iloc[[0]].assign(network="mine")
    dims = samples.problems()[list(DIMS)].iloc[1]
    table.assign(**dims.to_dict()).to_csv(tmp_path / "layers.csv", index=False)
    weight = shipping.network_weights(measured(), tmp_path / "layers.csv", ["mine"])
    pool = pool_of(measured(), weight=weight)
    assert np.flatnonzero(pool.weight).tolist() == [1] and len(pool.smallest(0.01)) == 1


def published(folder, operation, one_in, arch=ARCH, product=ARCH):
    """A published model of part of a recording, in the results that made it."""
    path = folder / "datasets" / arch / operation
    changed = {} if arch == ARCH else {"features": library_of_arch(arch).feature_set}
    data, trained = train_on_recording(path, product, operation, one_in, arch, **changed)
    trained.save(folder / "training")
    served = stage.serve_model(data, trained.model, SMALL_SERVING)
    served.save(folder / "serving")
    write_evaluation(folder / "evaluation.json", data)
    # Publishing reads of a report whose it is; no test here reads more.
    parts = [folder / "training"], [folder / "evaluation.json"], [folder / "serving"]
    publication.publish_models(*parts, folder / "models" / arch, page=PAGE)
    return folder / "models" / arch


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ship") / "results"
    published(folder, OPERATION, 4)
    return folder


def ship(results, *words):
    return main.main(["ship", str(results / "models" / ARCH), *map(str, words)])


def test_the_folder_has_the_sources_and_a_selector_of_exactly_the_set(results, tmp_path, capsys):
    out = tmp_path / "out"
    assert ship(results, "--max-loss", "5%", "--output", out, "--json") == 0
    told = json.loads(capsys.readouterr().out)["operations"][OPERATION]
    names = (out / "kernels.txt").read_text().split()
    assert names == sorted(told["kernels"]) and 1 < len(names) < told["pool"]
    assert {path.name for path in (out / "kernels").iterdir()} == {
        f"{n}.{end}" for n in names for end in ("hpp", "cpp")
    }
    for name in names:
        assert name in (out / "kernels" / f"{name}.hpp").read_text()
        assert f"    {name}\n" in (out / "CMakeLists.txt").read_text()
        assert f"&kernel_{name}()," in (out / f"src/{OPERATION}.cpp").read_text()
    assert json.loads((out / "figures.json").read_text())["operations"][OPERATION] == told
    header = tmp_path / f"models/grouped_conv_{OPERATION}_{ARCH}" / model_files.SELECTOR
    header.parent.mkdir(parents=True)
    shutil.copyfile(out / OPERATION / model_files.SELECTOR, header)
    assert set(re.findall(r'"(grouped_conv_\w+)"', header.read_text())) == set(names)
    whole = Model.read(results / "models" / ARCH / f"grouped_conv_{OPERATION}_{ARCH}")
    own = whole.with_pool(whole.pool["kernel"].isin(names).to_numpy())
    shapes = [(c, h) for c in (8, 16, 32, 64, 128, 256, 512) for h in range(7, 60, 5)]
    asked = [Problem.from_dims("forward", "bf16", N=8, C=c, K=2 * c, Hi=h, Wi=h) for c, h in shapes]
    picked = np.array(picks_of_cpp(tmp_path, own.spec, np.array([one.dims for one in asked]), 0, 0)[0])
    assert np.mean(own.predict(problem_frame(asked)).argmax(axis=1) == picked) > 0.9
    assert ship(results, "--output", out) == 2
    assert "exists and is no empty folder" in capsys.readouterr().err


def test_solvers_of_a_library_are_not_compiled(tmp_path, capsys):
    models = published(tmp_path / "results", "forward_fp16", 120, "gfx942_miopen", "gfx942_mi300x")
    out = tmp_path / "out"
    assert main.main(["ship", str(models), "--max-bytes", "1M"]) == 2
    assert "nothing is compiled; use --max-kernels" in capsys.readouterr().err
    assert main.main(["ship", str(models), "--max-loss", "5%", "--output", str(out)]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[1].endswith("; nothing to compile") and "nothing to compile; `tileseer export" in said
    assert {path.name for path in out.iterdir()} == {"kernels.txt", "figures.json", "forward_fp16"}
    figures = json.loads((out / "figures.json").read_text())["operations"]["forward_fp16"]["set"]
    assert not {"bytes", "bytes_from"} & figures.keys()


def test_cutlass_kernels_are_a_project_for_nvcc(tmp_path, capsys):
    models = published(tmp_path / "results", OPERATION, 16, "sm_90", "sm_90_h200")
    out = tmp_path / "out"
    assert main.main(["ship", str(models), "--output", str(out), "--ck-api", "2026.06"]) == 2
    assert "--ck-api is for AMD's CK Tile kernels, not for sm_90" in capsys.readouterr().err
    assert main.main(["ship", str(models), "--max-loss", "5%", "--output", str(out)]) == 0
    names = (out / "kernels.txt").read_text().split()
    assert {path.name for path in (out / "kernels").iterdir()} == {f"{n}.{end}" for n in names for end in ("cuh", "cu")}
    text = (out / "CMakeLists.txt").read_text()
    assert "code=sm_90" in text and "hip" not in text.lower() and not (out / "emulated").exists()
    assert "cudaStream_t" in (out / "include/tileseer/convolution.hpp").read_text()


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Models of three operations."""
    worlds = [samples.measured(variant) for variant in ("forward", "bwd_data", "bwd_weight")]
    return publish_results(tmp_path_factory.mktemp("three") / "results", worlds)


def ship_three(three, *words):
    return main.main(["ship", str(three), *map(str, words)])


@pytest.fixture
def told(three, capsys):
    """Return what a call that ends well says of its operations."""

    def run(*words):
        assert ship_three(three, *words, "--json") == 0
        return json.loads(capsys.readouterr().out)["operations"]

    return run


def test_without_limits_it_is_the_set_of_the_models(three, told):
    sets = told()
    assert len(sets) == 3
    for operation, entry in model_files.read_index(three).operations.items():
        listed = documents.read_document(three / entry.folder / model_files.KERNELS, Kernels)
        assert sets[operation]["kernels"] == listed.pruned and sets[operation]["pool"] == listed.pool_size
        for figure, split in (("loss", "train"), ("unseen_loss", "validation")):
            reached = listed.oracle_within_pruned[split].mean
            assert sets[operation]["set"][figure] == pytest.approx(100 - reached, abs=1e-3)


def test_limits_hold_for_all_operations_together(three, told, tmp_path, capsys):
    losses = {}
    for most in (6, 8, 40):
        out = tmp_path / str(most)
        sets = told("--max-kernels", most, "--max-loss", "0.1%", "--output", out).values()
        assert 3 < len((out / "kernels.txt").read_text().split()) <= most
        assert sum(len(chosen["kernels"]) for chosen in sets) <= most
        losses[most] = sum(chosen["set"]["loss"] for chosen in sets)
    assert losses[6] > losses[8] > losses[40] and losses[40] < 0.3
    assert sum(chosen["set"]["bytes"] for chosen in told("--max-bytes", "60k").values()) <= 60_000
    assert ship_three(three, "--max-kernels", "4") == 2
    error = capsys.readouterr().err
    needed = int(error.split(" kernels run every problem of 3 operations")[0].split()[-1])
    assert "problems would have none" in error and needed > 4
    assert told("--max-kernels", needed)


def test_a_loss_above_its_limit_is_printed_with_both(three, told, capsys):
    few = "--operation", "forward_bf16", "--max-kernels", "2"
    loss = told(*few)["forward_bf16"]["set"]["loss"]
    assert loss > 1
    line = f"the other limits win over --max-loss: forward_bf16 loses {loss:g} %, more than 1 %"
    for words, said in ((few, True), ((*few, "--max-loss", f"{loss + 0.0001}%"), False), (few[:2], False)):
        assert ship_three(three, *words) == 0
        lines = capsys.readouterr().out.splitlines()
        assert (line in lines) == any("win over" in one for one in lines) == said


def test_the_same_project_has_the_same_bytes_and_names_no_folder(three, tmp_path):
    contents = []
    for name in ("first", "second"):
        assert ship_three(three, "--max-kernels", "6", "--output", tmp_path / name) == 0
        files = [path for path in sorted((tmp_path / name).rglob("*")) if path.is_file()]
        contents.append({path.relative_to(tmp_path / name): path.read_bytes() for path in files})
    assert contents[0] == contents[1] and Path("main.cpp") in contents[0]
    folders = str(tmp_path).encode(), str(three).encode(), str(ROOT).encode()
    assert not any(folder in content for content in contents[0].values() for folder in folders)


def test_kernels_that_the_level_does_not_have_are_not_shipped(three, told, capsys, monkeypatch):
    lacked = KernelConfig.parse("grouped_conv_fwd_bf16_nhwgc_2d_mem_cshuffle_intrawave_64x64x64_4x1x1_16x16x16")
    monkeypatch.setattr(CkTileEmitter, "lack", lambda self, kernel, arch: "none" if kernel == lacked else "")
    assert lacked.name not in told("--operation", "forward_bf16", "--max-loss", "0.001%")["forward_bf16"]["kernels"]
    assert ship_three(three, "--operation", "forward_bf16") == 0
    assert "without 1 kernels that this level" in capsys.readouterr().out


def test_models_without_their_dataset_are_refused(results, tmp_path, capsys):
    shutil.copytree(results / "models", tmp_path / "models")
    assert main.main(["ship", str(tmp_path / "models" / ARCH)]) == 2
    assert "MODEL_DIR must be in the results folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-bytes", "7k"], "0 kernels are within the limits"),
        (["--operation", "bwd_data_bf16"], "--operation: 'bwd_data_bf16' is none of"),
        (["--operation", ""], "--operation: '' is none of"),
        (["--networks", ""], "--networks: names none"),
        (["--max-loss", "2"], "is no loss between 0 and 50%"),
        (["--max-bytes", "2"], "is no number with one of k, M, G"),
        (["--layers", "layers.csv"], "--layers layers.csv: name with --networks"),
        (["--ck-api", "2001.01", "--output", "nowhere"], "no API level '2001.01'"),
        (["--networks", "resnet50"], "'resnet50': is not in config/problems/layers.csv"),
        (["--networks", "no_such_net"], "; measured are layers of "),
    ],
)
def test_mistakes_are_told(results, capsys, words, message):
    with pytest.raises(SystemExit) if message.startswith(("is no ", "write")) else pytest.MonkeyPatch.context():
        assert ship(results, *words) == 2
    assert message in capsys.readouterr().err
