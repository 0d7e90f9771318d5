"""``tileseer tune --driver``: solvers timed by MIOpen's driver, of which a stand-in prints the documented lines."""

import json

import pytest
from help_examples import words
from stand_in_driver import write_driver

from tileseer.cli import main
from tileseer.libraries.miopen import device as solver_device
from tileseer.measure.journal import read_journal
from tileseer.problems.problem import Problem
from tileseer.serve.selector import Selector
from tileseer.serve.tuned import tuned_path

OPERATION = "forward_fp32"
LINE = "MIOpenDriver conv -n {} -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -F 1"
LAST = " -I NHWC -f NHWC -O NHWC"
UFDB = "gfx90a68.HIP.3_5_2_36bb7fd4a.ufdb.txt"


@pytest.fixture
def models(solvers, tmp_path):
    """The models under a path whose tuned choices are this test's."""
    (tmp_path / "models").symlink_to(solvers)
    return tmp_path / "models"


def layer(batch, layout=""):
    return Problem.from_dims(
        "forward", "fp32", N=batch, C=64, K=64, Hi=56, Wi=56, Y=3, X=3, pad_h=1, pad_w=1
    ).with_layout(layout)


def first_of(models, problem, count=3):
    listed = Selector.read(models, OPERATION).shortlist(problem, count)
    return [row["kernel"].partition("_2d_")[2] for row in listed]


@pytest.fixture
def tune(models, tmp_path, capsys):
    def run(lines, driver, *options):
        path = tmp_path / "problems.log"
        path.write_text("\n".join(lines))
        status = main.main(["tune", str(models), "--problems", str(path), "--driver", str(driver), *options, "--json"])
        said = capsys.readouterr()
        return status, json.loads(said.out)["operations"][0] if said.out else said.err

    return run


def test_the_fastest_of_the_first_solvers_is_remembered_and_exported(models, tmp_path, capsys, tune, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    for name in ("gfx90a68.HIP.3_2_0_x.udb.txt", UFDB):
        (home / name).write_text(
            "64-56-56-3x3-64-56-56-3-1x1-1x1-1x1-0-NCHW-FP32-F=GemmFwdRest:0.5,0,miopenConvolutionFwdAlgoGEMM\n"
        )
    monkeypatch.setenv("MIOPEN_USER_DB_PATH", str(home))
    first = first_of(models, layer(5))
    times = {solver: 0.5 - 0.1 * place for place, solver in enumerate(first)}
    driver, runs = write_driver(tmp_path, times, build="3_5_2_36bb7fd4a")
    status, told = tune([LINE.format(5), LINE.format(6) + LAST], driver)
    assert (status, told["tuned"], told["device_kind"]) == (0, 2, "measured")
    (chosen,) = [row for row in told["problems"] if row["problem"].startswith("N=5")]
    assert chosen["choice"].endswith(first[-1]) and chosen["timed"] == len(first)
    assert chosen["time_ms"] == pytest.approx(times[first[-1]])
    tuned = Selector.read(models, OPERATION)
    assert tuned.tuned(layer(5)).candidate.endswith(first[-1]) and tuned.tuned(layer(6, "NHWC"))
    assert tuned.tuned(layer(6)) is None  # NHWC is another problem
    for run in runs():
        seen, solver = run["environment"], run["environment"]["MIOPEN_DEBUG_FIND_ONLY_SOLVER"]
        assert seen["MIOPEN_FIND_MODE"] == "NORMAL" and seen["MIOPEN_USER_DB_PATH"] != str(home)
        assert ("MIOPEN_DEBUG_CONV_GEMM" in seen) == (not solver.startswith("Gemm"))
        assert run["files"] == ["gfx90a68.HIP.3_2_0_x.udb.txt"]
        assert run["arguments"][0] == "conv" and {"-t", "-i", "-V"} <= set(run["arguments"])
    assert not list(home.glob("*3_4_0*"))  # the records of single solvers are not the user's
    count = len(runs())
    assert tune([LINE.format(5)], driver)[1]["before"] == 1 and len(runs()) == count
    files = ["--problems", str(tmp_path / "problems.log"), "--user", str(home / UFDB), "--output", str(tmp_path / "db")]
    assert main.main(["export", "miopen", str(models), *files, "--tuned", "--json"]) == 0
    capsys.readouterr()
    (line,) = (tmp_path / "db" / UFDB).read_text().splitlines()[1:]
    assert line.startswith("64-56-56-3x3-64-56-56-5-")
    # Time of the driver, workspace and algorithm of the record that MIOpen wrote.
    assert line.endswith(f"={first[-1]}:{times[first[-1]]:.6g},512,miopenConvolutionFwdAlgoDirect")


def test_what_was_timed_with_another_version_is_no_record_of_this_one(models, tmp_path, capsys, tune):
    """The models' times are of 3.3.0: for another version only what was timed with it is written."""
    user = tmp_path / UFDB
    user.write_text(
        "64-56-56-3x3-64-56-56-3-1x1-1x1-1x1-0-NCHW-FP32-F=GemmFwdRest:0.5,0,miopenConvolutionFwdAlgoGEMM\n"
    )
    tune([LINE.format(5)], write_driver(tmp_path, build="3_4_0_36bb7fd4a")[0])

    def export(folder, *options):
        files = ["--problems", str(tmp_path / "problems.log"), "--user", str(user), "--output", str(tmp_path / folder)]
        status = main.main(["export", "miopen", str(models), *files, *options, "--json"])
        return status, json.loads(capsys.readouterr().out)

    status, told = export("a", "--tuned")
    assert status == 1 and "not timed with MIOpen 3.5.2" in next(iter(told["left_out"]))
    status, told = export("b")
    assert status == 1 and told["written"] == 0
    assert "are of MIOpen 3.3.0, commit 2d1fd997a6fc, but --user is of MIOpen 3.5.2" in told["notes"][0]
    assert "tileseer run --arch installed_miopen" in told["notes"][0]
    tuned_path(models, OPERATION).unlink()
    tune([LINE.format(5)], write_driver(tmp_path, build="3_5_2_36bb7fd4a")[0])
    status, told = export("c")
    assert status == 0 and told["written"] == told["entries"] == 1


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("crash", "crash"),
        ("not applicable", "unsupported"),
        ("another", "unsupported"),
        ("silent", "unsupported"),
        ("no number", "crash"),
        ("wrong", "wrong_result"),
        ("hang", "run_timeout"),
    ],
)
def test_a_solver_that_fails_is_no_choice(models, tmp_path, tune, monkeypatch, fault, status):
    monkeypatch.setattr(solver_device, "LONGEST_RUN_SECONDS", 2.0)
    first = [solver for solver in first_of(models, layer(5)) if solver != "GemmFwdRest"]
    driver, _ = write_driver(tmp_path, {first[0]: 0.01}, {first[0]: fault})
    _, told = tune([LINE.format(5)], driver)
    (row,) = told["problems"]
    assert not row["choice"].endswith(first[0])
    journal, _ = read_journal(tuned_path(models, OPERATION).with_suffix(".journal.csv"))
    statuses = dict(zip(journal["kernel"].to_pylist(), journal["status"].to_pylist(), strict=True))
    assert {status for name, status in statuses.items() if name.endswith(f"_{first[0]}")} == {status}


def test_without_a_driver_that_runs_nothing_is_timed(models, tmp_path, tune, capsys):
    (tmp_path / "p.log").write_text(LINE.format(5))
    assert main.main(["tune", str(models), "--problems", str(tmp_path / "p.log"), "--device", "gpu"]) == 2
    assert "which its own program times: --driver MIOpenDriver" in capsys.readouterr().err
    status, said = tune([LINE.format(5)], tmp_path / "absent")
    assert status == 2 and "absent: there is no such program" in said.splitlines()[-1]
    status, said = tune([LINE.format(5)], tmp_path / "p.log")
    assert status == 2 and "p.log: it cannot be executed; give the path of MIOpenDriver" in said
    other, _ = write_driver(tmp_path, version="something else")
    status, said = tune([LINE.format(5)], other)
    assert status == 2 and "prints no version" in said
    everything, _ = write_driver(tmp_path, faults=dict.fromkeys(first_of(models, layer(5)), "crash"))
    status, told = tune([LINE.format(5)], everything)
    assert status == 1 and told["left_out"][0]["reason"].startswith("no candidate of its short list ran")


def test_the_example_of_the_help_text_remembers_choices(models, tmp_path, monkeypatch, capsys):
    example = words("tileseer tune results/models/gfx942_miopen")
    driver, _ = write_driver(tmp_path, {solver: 0.5 for solver in first_of(models, layer(5))})
    example[example.index("--driver") + 1] = str(driver)
    folder = tmp_path / example[1]
    folder.parent.mkdir(parents=True)
    folder.symlink_to(models)
    (tmp_path / "training.log").write_text(LINE.format(5))
    monkeypatch.chdir(tmp_path)
    assert main.main(example) == 0
    assert "measured" in capsys.readouterr().out
