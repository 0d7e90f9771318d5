"""``tileseer tune``: short lists timed on devices without a GPU, resumed after a kill, and what select then gives."""

import json
import shutil
import signal
import subprocess
import sys

import learning_samples as samples
import numpy as np
import pytest
from host_library import COMPILER, build
from published_models import let_the_hashes_fit, publish_recording
from repository import CONFIG, ROOT

from tileseer.cli import main
from tileseer.cli.options import word_of
from tileseer.core import documents
from tileseer.core.errors import UserError
from tileseer.judge.evaluation import Evaluation
from tileseer.judge.ranking import has_pick
from tileseer.learn import model_files, own_choice
from tileseer.libraries.kernel_table import chunk_of
from tileseer.measure.journal import read_journal
from tileseer.problems.problem import DIMS, Problem, problems_of_frame
from tileseer.serve import tuning
from tileseer.serve.selector import Selector
from tileseer.serve.tuned import read_choices, tuned_path

OPERATION = "forward_bf16"
GOOD = ("eng0_k2=0", "eng0_k2=1", "eng1_k2=0", "eng1_k2=1", "eng2")
"""Plans of the stand-in, of which the second is the fastest."""
TABLES = CONFIG / "hardware.yaml", CONFIG / "simulated_device.yaml"
UNRECORDED = Problem.from_dims("bwd_weight", "bf16", N=3, C=40, K=48, Hi=17, Wi=19)


@pytest.fixture
def own(models, tmp_path):
    """A copy of the models, to tune."""
    return shutil.copytree(models, tmp_path / "models")


def problems_file(folder, problems):
    path = folder / "problems.csv"
    rows = [",".join(map(str, one.dims)) for one in problems]
    path.write_text("\n".join([",".join(DIMS), *rows, ""]))
    return str(path)


@pytest.fixture
def call(own, tmp_path):
    """The command for a few problems of the small world, without its options."""
    problems = problems_of_frame(samples.measured("forward").problems)[:12]
    return [
        "tune",
        str(own),
        "--problems",
        problems_file(tmp_path, problems),
        "--config",
        str(CONFIG),
    ], problems


def tune(capsys, *call):
    status = main.main([*call, "--json"])
    printed = capsys.readouterr()
    return status, json.loads(printed.out)["operations"][0] if printed.out else printed.err


def test_a_tuned_choice_is_the_fastest_of_its_list_and_what_select_gives(call, own, capsys):
    status, printed = tune(capsys, *call[0])
    assert status == 0, printed
    assert printed["tuned"] + len(printed["left_out"]) == 12 and printed["device_kind"] == "simulated"
    untuned = Selector.read(own, OPERATION, device="another", is_here=True)
    tuned = Selector.read(own, OPERATION)
    dims = np.array([problem.dims for problem in call[1]])
    picks = tuned.select(dims, use_known=True)
    for problem, pick in zip(call[1], picks.candidate.tolist(), strict=True):
        choice = tuned.tuned(problem)
        if choice is None:
            assert not untuned.rank(problem)
            continue
        assert tuned.candidates[pick] == choice.candidate
        assert choice.candidate in [row["candidate"] for row in untuned.shortlist(problem, 3)]
    assert 1 <= printed["mean_gain"] <= printed["largest_gain"]
    assert printed["changed"] == sum(row["first"] != row["choice"] for row in printed["problems"])
    rows, malformed = read_journal(tuned_path(own, OPERATION).with_suffix(".journal.csv"))
    assert rows.num_rows == sum(row["timed"] for row in printed["problems"]) and not malformed.num_rows
    # The models themselves are untouched, and are not timed twice.
    assert main.main(["verify", str(own)]) == 0
    assert capsys.readouterr().out
    assert tune(capsys, *call[0])[1]["before"] == printed["tuned"]
    assert read_journal(tuned_path(own, OPERATION).with_suffix(".journal.csv"))[0].num_rows == rows.num_rows


def test_it_is_timed_as_the_times_of_the_model_were(own):
    path = own / model_files.PROVENANCE
    assert tuning._options(own, "hip")["benchmark"] == {"device": "hip"}
    made = {"benchmark": {"seed": 7, "timing": "thorough"}}
    fields = {"format": 1, "arch": "gfx950", "tileseer": "0", "source": {}, "python": "3"}
    fields |= {"packages": {}, "compiler": {}, "operations": {}}
    path.write_text(json.dumps(fields | {"config": made}))
    let_the_hashes_fit(own)
    assert tuning._options(own, "simulated")["benchmark"] == {
        "seed": 7, "timing": "thorough", "device": "simulated",
    }  # fmt: skip


def test_the_text_says_what_was_gained_and_when_the_time_is_over(call, own, capsys):
    assert main.main([*call[0], "--minutes", "1e-9"]) == 1
    line = "  --minutes 1e-09 are over: 12 problems left; run again to go on"
    assert line in capsys.readouterr().out.splitlines()
    assert main.main(call[0]) == 0
    out = capsys.readouterr().out
    assert "forward_bf16 on gfx950_mi355x, device kind: simulated" in out
    assert "(geometric mean)" in out and "picks changed" in out


KILLED = """
import os, signal, sys
from tileseer.cli import main
from tileseer.serve import tuning
remember, count = tuning.remember, iter(range(3))
def killed(path, choices):
    remember(path, choices)
    if next(count) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
tuning.remember = killed
main.main(sys.argv[1:])
"""


def test_what_was_tuned_before_a_kill_stays(call, own, capsys):
    ended = subprocess.run([sys.executable, "-c", KILLED, *call[0]], check=False)
    assert ended.returncode == -signal.SIGKILL
    before = read_choices(tuned_path(own, OPERATION))
    assert len(before) == 3
    status, printed = tune(capsys, *call[0])
    assert status == 0 and printed["before"] == 3
    assert read_choices(tuned_path(own, OPERATION))[:3] == before


def test_a_mistake_is_one_line_and_nothing_is_timed(call, own, capsys):
    path = tuned_path(own, OPERATION)
    for options, message in [
        (
            ["--device", "gpu"],
            "there is no driver.so; on a machine with the GPU, run first: tileseer run results/models/gfx",
        ),
        (["--device", "recorded", "--recording", "absent"], "absent/recording.json"),
        (["--device", "recorded", "--recording", str(ROOT / "config/recorded/sm_90")], "has kernels of sm_90; give a"),
        (["--dtype", "fp32"], "there is no model of fp32; it has forward_bf16"),
        (["--libraries", "lib"], "--libraries lib: is for --device gpu, and the device is simulated"),
        (["--recording", "lib"], "--recording lib: is for --device recorded, and the device is simulated"),
        (["--device", "recorded"], "--device recorded: the times of "),
        (["--config", str(own)], f"--config {own}: has no hardware.yaml; leave it out"),
        (["--problems", "absent.csv"], "--problems absent.csv: there is no such file"),
        ([], "line 1: the columns are not those of tuned choices; move the file away"),
    ]:
        if not options:
            path.parent.mkdir()
            path.write_text("another table\n")
        usual = list(call[0])
        for option in set(options[::2]) & set(usual):
            del usual[usual.index(option) : usual.index(option) + 2]
        assert main.main([*usual, *options]) == 2
        *warnings, error = capsys.readouterr().err.splitlines()
        assert message in error and not (warnings and options)
        assert [*path.parent.glob("*")] == ([] if options else [path])
    selector = Selector.read(own, OPERATION)
    selector.spec = selector.spec.model_copy(update={"device_kind": "recorded"})
    where = tuning.Where("simulated", *TABLES)
    with pytest.raises(UserError, match="simulated ones are not for"), tuning.claimed(selector, where, own):
        pass


@pytest.fixture(scope="module", params=["sm_90", "sm_90_cudnn"])
def recorded(request, tmp_path_factory):
    """Published models of a part of a recording, and problems of it that they were not trained on."""
    folder, operation = tmp_path_factory.mktemp("recorded"), "bwd_weight_bf16"
    start = {} if request.param == "sm_90_cudnn" else {"features": "cutlass", "prior": "none"}
    data = publish_recording(folder, "sm_90_h200", operation, 8, request.param, folder / request.param, **start)
    problems = problems_of_frame(data.problems.iloc[data.problems.index[data.best_tflops > 0]])
    return folder / request.param, problems, data


def test_the_figures_of_two_and_three_are_those_of_short_lists(recorded):
    models, _, data = recorded
    selector = Selector.read(models, "bwd_weight_bf16")
    (path,) = models.glob("*/evaluation.json")
    found = documents.read_document(path, Evaluation)
    rows = np.flatnonzero(data.held_out & has_pick(data))
    achieved, own = data.grid(rows), own_choice.library_choices(data)
    place = {name: number for number, name in enumerate(data.candidates["candidate"])}
    offered = own_choice.offered(data)[rows] & data.proven
    for count, figure in ((2, found.best_of_2), (3, found.best_of_3)):
        reached = []
        for number, problem in enumerate(problems_of_frame(data.problems.iloc[rows])):
            names = []
            if own is not None:
                first = own[rows[number]]
                plans = [first, *(q for q in np.flatnonzero(offered[number]) if q != first)]
                names = [data.candidates["candidate"][q].partition(f"_{problem.ndim}d_")[2] for q in plans]
            listed = selector.shortlist(problem, count, names, selector.library or "", use_known=False)
            reached.append(max((achieved[number, place[row["candidate"]]] for row in listed), default=0.0))
        assert 100 * np.mean(reached) == pytest.approx(figure.mean, abs=1e-3)


def test_a_recording_gives_the_times_of_its_candidates(recorded, tmp_path, capsys):
    models, problems, _ = recorded
    path = problems_file(tmp_path, [*problems[:20], UNRECORDED])
    status, printed = tune(capsys, "tune", str(models), "--problems", path, "--config", str(CONFIG))
    assert status == 0 and printed["device_kind"] == "recorded" and printed["tuned"] >= 15
    assert {"problem": word_of(UNRECORDED), "reason": "the recording has no times of it"} in printed["left_out"]
    assert printed["mean_gain"] >= 1 and printed["changed"] >= 0
    selector = Selector.read(models, "bwd_weight_bf16")
    for row in printed["problems"]:
        assert row["timed"] <= 4
    if models.name == "sm_90_cudnn":
        # The library's own choice is in the list, so that nothing is slower than without tuning.
        assert all(row["gain"] >= 0.97 for row in printed["problems"])
        problem = next(one for one in problems[:20] if selector.tuned(one))
        name = selector.tuned(problem).candidate
        plan = name.partition(f"_{problem.ndim}d_")[2]
        chosen = selector.choose(problem, ["eng0_k99=1", plan], selector.library)
        assert selector.candidates[chosen] == name


@pytest.mark.parametrize("recorded", ["sm_90"], indirect=True)
def test_a_recording_without_times_leaves_nothing(recorded, tmp_path, capsys):
    own = shutil.copytree(recorded[0], tmp_path / "models")
    path = problems_file(tmp_path, [UNRECORDED])
    status, printed = tune(capsys, "tune", str(own), "--problems", path, "--config", str(CONFIG))
    assert status == 1 and [one["reason"] for one in printed["left_out"]] == ["the recording has no times of it"]
    assert not tuned_path(own, "bwd_weight_bf16").parent.exists()


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """Folder of the driver of the host."""
    if COMPILER is None:
        pytest.skip("no host C++ compiler")
    folder = tmp_path_factory.mktemp("driver")
    build(folder)
    return folder


@pytest.fixture
def plans_of_a_driver(recorded, driver, tmp_path, monkeypatch):
    """Models whose first plans have the names of the stand-in's, and where its driver of the host is."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT / 'tests/builders/stand_in_cudnn'}")
    selector = Selector.read(recorded[0], "bwd_weight_bf16")
    names = [f"cudnn_conv_bwd_weight_bf16_2d_{plan}" for plan in GOOD]
    selector.candidates[: len(GOOD)] = selector.kernels[: len(GOOD)] = names
    selector._row = {name: row for row, name in enumerate(selector.candidates)}
    return selector, tmp_path / "models", tuning.Where("gpu", *TABLES, libraries=driver)


@pytest.mark.parametrize("recorded", ["sm_90_cudnn"], indirect=True)
def test_plans_are_timed_through_the_driver_of_their_library_alone(plans_of_a_driver, monkeypatch):
    selector, models, where = plans_of_a_driver
    sizes = {"N": 2, "C": 4, "Hi": 7, "Wi": 6, "Y": 3, "X": 2, "pad_h": 1}
    problems = [Problem.from_dims("bwd_weight", "bf16", **sizes, K=channels) for channels in (20, 18, 10)]
    with tuning.claimed(selector, where, models) as timer:
        results = list(tuning.tune(selector, models, problems, timer, 5))
        assert timer.library == "cudnn 91900" and timer.name == "host memory"
    tuned, nothing, _ = results
    assert tuned.choice.candidate.endswith("eng0_k2=1") and tuned.choice.timed == 5
    assert tuned.choice.device_kind == "measured" and tuned.gain >= 1
    assert nothing.reason == "cudnn 91900 offers no candidate for it on this device"
    (kept, *_), time_ms = read_choices(tuned_path(models, "bwd_weight_bf16")), tuned.choice.time_ms
    assert kept == tuned.choice._replace(time_ms=pytest.approx(time_ms))
    monkeypatch.setenv("STAND_IN_CUDNN_VERSION", "92000")
    refused = pytest.raises(UserError, match=r"of cudnn 91900, but this machine has cudnn 92000")
    with refused, tuning.claimed(selector, where, models):
        pass


def test_each_kernel_is_in_the_library_of_its_chunk(selector, tmp_path):
    own = tmp_path / OPERATION
    own.mkdir()
    for path in (tmp_path / "driver.so", *(own / f"{chunk}.so" for chunk in range(11))):
        path.touch()
    where = tuning.Where("gpu", *TABLES, libraries=tmp_path)
    session = tuning._session(selector, where, tmp_path / "models")
    kernels = list(dict.fromkeys(selector.kernels))
    assert {name: session.module_of(name) for name in kernels} == {
        name: str(own / f"{chunk_of(name, 11)}.so") for name in kernels
    }


@pytest.mark.parametrize(
    ("time_ms", "score", "noise", "expected"),
    [
        # The second was 2 % faster, and is predicted to be 8 % slower.
        ([1.0, 0.98], [0.0, -0.08], 0.001, 1),
        ([1.0, 0.98], [0.0, -0.08], 0.2, 0),
        # What did not run is not chosen, and what is not predicted is timed.
        ([np.nan, 2.0, 1.5], [0.0, -0.1, -np.inf], 0.01, 2),
        ([1.0, 2.0], [-np.inf, -np.inf], 0.01, 0),
    ],
)
def test_a_noisy_timing_is_weighed_with_the_prediction(time_ms, score, noise, expected):
    assert tuning.choice_of(np.array(time_ms), np.array(score), noise) == expected
