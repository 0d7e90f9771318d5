"""The user find-db that a model writes: a reader made from the format's description alone takes it, and our import."""

import itertools
import json
import re
from types import SimpleNamespace

import pytest
from help_examples import words

from tileseer.cli import main
from tileseer.core.errors import UserError
from tileseer.learn import model_files
from tileseer.libraries.miopen import exporter, recording
from tileseer.libraries.miopen.find_db import FileName, Key, Measured
from tileseer.libraries.miopen.solvers import SOLVERS, algorithm_word, is_gone
from tileseer.libraries.miopen.workspace import holds, workspace
from tileseer.libraries.problem_lists import read_problem_lists
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS, Problem, problems_of_frame
from tileseer.serve.selector import Selector

LIKE = "gfx90a68.HIP.3_3_0_36bb7fd4a.ufdb.txt"
OWN = "64-56-56-3x3-64-56-56-3-1x1-1x1-1x1-0-NCHW-FP32-F=GemmFwdRest:0.5,7225344,miopenConvolutionFwdAlgoGEMM\n"
LINE = (
    "MIOpenDriver conv -n {n} -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F {f} -t 1"
)
LAST = " --in_layout NHWC --fil_layout NHWC --out_layout NHWC"
OPERATIONS = ("forward_fp32", "bwd_data_fp32")


@pytest.fixture(autouse=True)
def every_kind_gets_records(monkeypatch):
    """Models of so few problems are often wrong."""
    monkeypatch.setattr(exporter, "MOST_BELOW_HALF", 1.0)


@pytest.fixture
def export(solvers, tmp_path, capsys):
    """Run the command on a text of problems; return its JSON, the lines and the path."""
    like = tmp_path / "home" / LIKE
    like.parent.mkdir()
    like.write_text(OWN)

    def run(text, *arguments, name="problems.txt", status=0):
        (tmp_path / name).write_text(text)
        files = ["--problems", str(tmp_path / name), "--output", str(tmp_path / "db")]
        files += ["--user", str(like)] if "--user" not in arguments else []
        assert main.main(["export", "miopen", str(solvers), *files, *map(str, arguments), "--json"]) == status
        captured = capsys.readouterr()
        if status == 2:
            assert captured.err.count("\n") == 1 and not (tmp_path / "db").exists()
            return captured.err
        path = tmp_path / "db" / LIKE
        if status == 1:
            assert not path.exists()
            return json.loads(captured.out), [], path
        return json.loads(captured.out), path.read_text().splitlines(), path

    run.like = like
    return run


def records(lines):
    """Key and entries of each line, as MIOpen's readers split them; it fails where they would complain or skip.

    The first = ends the key; entries are apart by ; and their id ends at the first :, its three values by commas.
    """
    keys = set()
    for line in lines:
        key, equals, values = line.partition("=")
        assert equals and key and key not in keys and not set(key) & set("=:; ")
        keys.add(key)
        entries = []
        for item in values.split(";"):
            solver, colon, behind = item.partition(":")
            time, workspace, algorithm = behind.split(",")
            assert colon and solver and "=" not in solver
            assert solver not in [one[0] for one in entries]
            entries.append((solver, float(time), int(workspace), algorithm))
        yield key, entries


PREFIX = {"F": "miopenConvolutionFwdAlgo", "B": "miopenConvolutionBwdDataAlgo", "W": "miopenConvolutionBwdWeightsAlgo"}


def check(lines):
    """What makes a record safe: times that rise, workspaces, and the algorithm of the solver in the direction."""
    count = 0
    for key, entries in records(lines):
        direction = re.search(r"-([FBW])(_g\d+)?$", key)[1]
        times = [time for _, time, _, _ in entries]
        assert times[0] > 0 and all(a < b for a, b in itertools.pairwise(times))
        for solver, _, size, algorithm in entries:
            assert size >= 0 and algorithm.startswith(PREFIX[direction])
            assert direction in SOLVERS[solver].directions
        count += len(entries)
    return count


def test_records_are_read_back_by_the_import_and_by_a_reader_of_the_format(export, solvers):
    text = "\n".join(f"MIOpen(HIP): Command [LogCmdConvolution] ./bin/{LINE.format(n=n, f=1)}" for n in (5, 7, 5, 3))
    told, lines, path = export(f"{text}\nsome other line\n{LINE.format(n=9, f=1)}{LAST}\n")
    assert (told["problems"], told["kept"], told["written"]) == (4, 1, 3)
    assert lines[0] == OWN.strip() and told["left_out"] == {"measured in the file of --user, which keeps its record": 1}
    assert check(lines) == told["entries"] + 1 > 6
    keys = [key for key, _ in records(lines)]
    assert keys[1].endswith("-5-1x1-1x1-1x1-0-NCHW-FP32-F") and keys[3].endswith("-0-NHWC-NHWC-NHWC-FP32-F")
    found = recording.read_find_dbs([path])
    assert len(found.times) == told["entries"] + 1
    problem = Problem.from_dims("forward", "fp32", N=5, C=64, K=64, Hi=56, Wi=56, Y=3, X=3, pad_h=1, pad_w=1)
    ranked = Selector.read(solvers, "forward_fp32").rank(problem)
    predicted = {row["kernel"].partition("_2d_")[2]: row["predicted_time"] for row in ranked}
    own = problems_of_frame(found.problems).index(problem)
    written = found.times.loc[found.times["problem"] == own, "solver"].tolist()
    assert written == [solver for solver in predicted if solver in written][:4]
    # Times are in the ratios that the model predicts; each is at least a little longer than the one before it.
    _, entries = next(record for record in records(lines) if record[0] == keys[1])
    ratios = [(time / entries[0][1], predicted[solver] / predicted[entries[0][0]]) for solver, time, *_ in entries]
    assert len(ratios) > 2 and all(ratio == pytest.approx(expected, rel=2e-3) for ratio, expected in ratios)


def test_layers_without_a_layout_are_written_in_both_forms_of_the_key(export):
    rows = "network,layer," + ",".join(DIMS) + "\nnet,conv,5,64,64,1,1,56,56,1,3,3,1,1,1,0,1,1,1,1,1\n"
    told, lines, path = export(rows, name="layers.csv")
    assert [Key.parse(key).layouts for key, _ in records(lines[1:])] == [("NCHW",), ("NHWC",) * 3]
    assert told["written"] == 2 and check(lines)
    path.unlink()
    assert export(rows, "--layout", "NHWC", name="layers.csv")[0]["written"] == 1


def test_what_is_measured_stays_unless_it_is_requested(export, solvers, tmp_path, monkeypatch):
    monkeypatch.setattr(exporter, "SLOWEST_FIRST", 1e9)  # whatever such a model picks
    selector = Selector.read(solvers, "forward_fp32")
    row = next(
        row
        for row, fastest in selector._measured.items()
        if row[-1] == 0
        and row[4] == 1
        and selector.candidates[fastest].endswith(tuple(one for one in SOLVERS if SOLVERS[one].workspace == "none"))
    )
    known = Problem.from_dims("forward", "fp32", **dict(zip(DIMS, map(int, row), strict=False)))
    csv = "direction,dtype,layout," + ",".join(DIMS) + "\n"
    csv += "forward,fp32,NCHW," + ",".join(map(str, known.dims)) + "\n"
    csv += "forward,fp32,NCHW,11,64,64,1,1,56,56,1,3,3,1,1,1,0,1,1,1,1,1\n"
    system = tmp_path / "gfx90a68.HIP.fdb.txt"
    other = "64-56-56-3x3-64-56-56-11-1x1-1x1-1x1-0-NCHW-FP32-F"
    names = [name for name in SOLVERS if "F" in SOLVERS[name].directions]
    every = ";".join(f"{name}:1,0,{algorithm_word(name, 'F')}" for name in names)
    own = "GemmFwdRest:0.5,9000000,miopenConvolutionFwdAlgoGEMM"
    system.write_text(f"{other}={own}\n{other.replace('-11-', '-12-')}={every}\n")
    told, _, _ = export(csv, "--system", system, name="p.csv", status=1)
    assert told["written"] == 0 and sorted(told["left_out"].values()) == [1, 1]
    told, lines, _ = export(csv, "--system", system, "--measured", "--top", 40, name="p.csv")
    made = dict(records(lines))
    assert told["written"] == 2 and check(lines)
    assert ("GemmFwdRest", 9000000) in [(solver, size) for solver, _, size, _ in made[other]]
    assert made[str(Key.of(known))][0][0] == selector.fastest_measured(known).partition("_2d_")[2]
    # The larger one of a record's workspace and of the formula's; a solver that the files never name is none of theirs.
    system.write_text(f"{other}={own.replace('9000000', '777')}\n")
    (tmp_path / "db" / LIKE).unlink()
    told, lines, _ = export(csv, "--system", system, "--measured", "--top", 40, name="p.csv")
    assert [one[::2] for one in dict(records(lines[1:]))[other]] == [("GemmFwdRest", 7225344)]


def test_a_formula_of_workspaces_is_for_the_releases_that_it_was_checked_on(tmp_path):
    key = "{}-56-56-3x3-64-56-56-8-1x1-1x1-1x1-0-NHWC-NHWC-NHWC-BF16-B"
    problem = Key.parse(key.format(64)).problem()
    solver, algorithm = "ConvHipImplicitGemmGroupBwdXdlops", "miopenConvolutionBwdDataAlgoImplicitGEMM"
    assert holds((3, 3, 0)) and not holds((3, 5, 2)) and workspace(solver, problem) == 0

    def system(sizes, layout="NHWC-NHWC-NHWC"):
        path = tmp_path / "gfx942130.HIP.fdb.txt"
        own = key.replace("NHWC-NHWC-NHWC", layout)
        lines = (f"{own.format(64 + 8 * at)}={solver}:1,{size},{algorithm}\n" for at, size in enumerate(sizes))
        path.write_text("".join(lines))
        return Measured.read([path])

    assert system([0] * 10).confirms(solver, problem)
    assert not system([0] * 9).confirms(solver, problem)
    assert not system([0] * 20 + [4096]).confirms(solver, problem)
    assert not system([0] * 20).confirms(solver, problem.with_layout("NCHW"))
    first = system([10**9] * 10, "NCHW")
    assert all(not first.confirms(solver, problem.with_layout(layout)) for layout in ("", "NCHW", "NHWC"))
    first = system([0] * 10, "NCHW")
    assert [first.confirms(solver, problem.with_layout(one)) for one in ("", "NCHW", "NHWC")] == [True, True, False]


USUAL = "5,64,64,1,1,56,56,1,3,3,1,1,1,0,1,1,1,1,1"
"""The dimensions of a layer like many that were measured."""


def table(*layouts_and_dims):
    """Forward layers as a CSV file."""
    head = "direction,dtype,layout," + ",".join(DIMS)
    return "\n".join([head, *(f"forward,fp32,{layout},{dims}" for layout, dims in layouts_and_dims)])


def test_a_solver_that_a_version_lacks_is_not_written_though_stale_files_name_it(export, solvers, tmp_path, capsys):
    every = [name for name in SOLVERS if "F" in SOLVERS[name].directions]
    stale = ";".join(f"{name}:1,0,{algorithm_word(name, 'F')}" for name in every)
    key, system = "64-56-56-3x3-64-56-56-5-1x1-1x1-1x1-0-NCHW-FP32-F", tmp_path / "gfx90a68.HIP.fdb.txt"
    system.write_text(f"{key}={stale}\n")
    problem = Problem.from_dims("forward", "fp32", **dict(zip(DIMS, map(int, USUAL.split(",")), strict=True)))
    written = {}
    for version in ("3_3_0", "3_5_2"):
        user = tmp_path / LIKE.replace("3_3_0", version)
        user.write_text("")
        settings = exporter.Settings(user, system=[system], workspace=1 << 40, top=99)
        writer = exporter.Writer(
            Selector.read(solvers, "forward_fp32"), exporter.Files.read(settings, tmp_path), settings
        )
        written[version] = {name for name in every if writer.entry(key, problem, name, 1.0)}
    gone = {"ConvOclDirectFwdGen", "ConvOclDirectFwd", "ConvOclDirectFwd11x11"}
    assert gone < written["3_3_0"] and not any(is_gone(name, (3, 5, 2)) for name in written["3_5_2"])
    # Nor does a recording of that version have its times.
    for version, expected in (("3.5.1", 0), ("3.5.2", sum(is_gone(name, (3, 5, 2)) for name in every))):
        call = ["import", "find-db", str(system), "--arch", "gfx90a", "--output", str(tmp_path / version)]
        assert main.main([*call, "--release", version, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["refused"].get(recording.GONE, 0) == expected


def test_a_record_is_written_only_where_problems_like_it_were_measured(export):
    grouped, huge = USUAL.replace("64,64,1,", "64,64,4,"), USUAL.replace("5,", "256,", 1).replace("56,56", "2048,2048")
    told, lines, _ = export(table(("NCHW", USUAL), ("NHWC", grouped), ("NCHW", huge)), name="p.csv")
    assert told["left_out"] == {exporter.OUTSIDE: 2} and told["written"] == 1 and check(lines[1:])


def test_a_kind_whose_picks_are_often_slow_gets_no_record(export, solvers, monkeypatch):
    told, _, path = export(table(("NCHW", USUAL)), name="p.csv")
    assert told["written"] == 1
    path.unlink()
    monkeypatch.setattr(exporter, "MOST_BELOW_HALF", 0.0)
    told, _, _ = export(table(("NCHW", USUAL)), name="p.csv", status=1)
    assert told["left_out"] == {exporter.OFTEN_SLOW: 1}
    # What was measured itself begins with what was the fastest.
    selector = Selector.read(solvers, "forward_fp32")
    row = next(row for row in selector._measured if row[-1] == 0 and row[4] == 1)
    told, _, _ = export(table(("NCHW", ",".join(map(str, row[:19])))), "--measured", name="p.csv")
    assert told["written"] == 1


def test_a_large_workspace_is_written_only_if_it_is_requested(export, solvers, tmp_path):
    problems = [Problem.from_dims("forward", "fp32", **dict(zip(DIMS, map(int, USUAL.split(",")), strict=True)))]
    settings = [exporter.Settings(export.like, workspace=size, top=40) for size in (0, 1 << 40)]
    made = {one.workspace: exporter.export_models(solvers, problems, one).lines for one in settings}
    sizes = {most: [one[2] for _, entries in records(lines[1:]) for one in entries] for most, lines in made.items()}
    assert set(sizes[0]) == {0} and max(sizes[1 << 40]) > 0


def test_a_fallback_begins_a_record_only_where_it_was_the_fastest_nearby(export, solvers, monkeypatch):
    selector = Selector.read(solvers, "forward_fp32")
    rows = [row for row in selector._measured if row[-1] == 0 and row[4] == 1][::40]
    dims = [dict(zip(DIMS, map(int, row), strict=False)) | {"N": row[0] + 1} for row in rows]
    problems = [Problem.from_dims("forward", "fp32", **one).with_layout("NCHW") for one in dims]
    monkeypatch.setattr(exporter, "FALLBACK_SOLVERS", "")  # every solver is one
    made = exporter.export_models(solvers, problems, exporter.Settings(export.like))
    assert made.left_out[exporter.SLOW_FIRST] > 0 and made.entries == len(made.lines) - 1 > 0
    written = {key: entries[0][0] for key, entries in records(made.lines[1:])}
    fastest = selector.known["candidate"].to_pylist()
    for problem in problems:
        near = selector.evidence.nearest(selector.evidence_columns([problem]), 3)[0][0]
        if (key := str(Key.of(problem))) in written:
            assert {fastest[row].partition("_2d_")[2] for row in near} == {written[key]}


def test_the_example_of_the_help_text_writes_a_file(solvers, tmp_path, monkeypatch, capsys):
    example = words("tileseer export miopen")
    (tmp_path / "results/models").mkdir(parents=True)
    (tmp_path / "results/models/gfx90a_miopen").symlink_to(solvers)
    (tmp_path / "training.log").write_text(LINE.format(n=5, f=1))
    for option in ("--user", "--system"):
        (tmp_path / example[example.index(option) + 1]).write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(exporter, "SLOWEST_FIRST", 1e9)  # these files name one solver
    assert main.main(example) == 0
    assert f"MIOPEN_USER_DB_PATH={tmp_path}/miopen-db" in capsys.readouterr().out
    assert check((tmp_path / "miopen-db" / LIKE).read_text().splitlines()) == 2


def test_models_of_other_kernels_are_refused(tmp_path, capsys, monkeypatch):
    index = SimpleNamespace(arch="gfx950", operations={"forward_bf16": None})
    monkeypatch.setattr(model_files, "read_index", lambda folder: index)
    (tmp_path / "p").write_text(LINE.format(n=5, f=1).replace("conv ", "convbfp16 ", 1))
    (tmp_path / LIKE).write_text(OWN)
    files = ["--problems", tmp_path / "p", "--user", tmp_path / LIKE, "--output", tmp_path / "db"]
    assert main.main(["export", "miopen", str(tmp_path), *map(str, files)]) == 2
    assert "not of MIOpen's solvers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gfx942130.HIP.3_2_0_36bb7fd4a.ufdb.txt", "is of gfx942, but the model is of gfx90a"),
        (
            "gfx90a6e.HIP.3_2_0_36bb7fd4a.ufdb.txt",
            "compute units, but the model is of gfx90a_mi210 with 104: give a model",
        ),
        (
            "gfx90a68.HIP.2_20_0_36bb7fd4a.ufdb.txt",
            "is of MIOpen 2_20_0_36bb7fd4a; records are written for 3.0 or newer",
        ),
        ("gfx90a68.HIP.fdb.txt", "no name of a user find-db"),
        ("gfx90a68.HIP.3_2.ufdb.txt", "no name of a user find-db"),
        ("gfx90a_104.HIP.3_2_0_36bb7fd4a.ufdb.txt", "no name of a user find-db"),
        ("gfx94226.HIP.3_2_0_36bb7fd4a.ufdb.txt", "no name of a user find-db"),
        ("gfx90a68.OpenCL.3_2_0_36bb7fd4a.ufdb.txt", "no name of a user find-db"),
    ],
)
def test_a_file_of_another_gpu_or_of_no_build_is_refused(export, tmp_path, name, message):
    (tmp_path / name).write_text(OWN)
    assert message in export(LINE.format(n=5, f=1), "--user", tmp_path / name, status=2)


def test_other_builds_older_records_and_files_that_exist_are_refused(export, tmp_path):
    line = LINE.format(n=5, f=1)
    assert "is of build 3_3_0_36bb7fd4a of MIOpen, not of 3.3.0.1" in export(line, "--build", "3.3.0.1", status=2)
    old = tmp_path / LIKE
    assert "there is no such file; run one convolution" in export(line, "--user", old, status=2)
    old.write_text(
        f"{OWN.partition('=')[0]}=miopenConvolutionFwdAlgoGEMM:GemmFwdRest,0.5,0,miopenConvolutionFwdAlgoGEMM,x\n"
    )
    assert "older form of records" in export(line, "--user", old, status=2)
    system = tmp_path / "gfx942130.HIP.fdb.txt"
    assert f"--system {system}: there is no such file" in export(line, "--system", system, status=2)
    system.touch()
    assert "is of gfx942, but --user of gfx90a" in export(line, "--system", system, status=2)
    assert export(line, "--build", "3.3.0.36bb7fd4a")[0]["written"] == 1
    with pytest.raises(AssertionError):
        export(line)  # the file is there


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("gfx950100", ("gfx950", "", 256)),
        ("gfx1150_6", ("gfx1150", "", 12)),
        ("gfx906_60", ("gfx906", "", 60)),
        ("gfx908_nosramecc78", ("gfx908", "_nosramecc", 120)),
        ("gfx90a_sramecc_xnack68", ("gfx90a", "_sramecc_xnack", 104)),
        ("gfx906_xnack_60", ("gfx906", "_xnack", 60)),
        ("gfx115128", ("gfx1151", "", 40)),
        ("gfx1151_20", ("gfx1151", "", 40)),
    ],
)
def test_names_of_files_have_the_gpu(tmp_path, name, parts):
    """test_miopen.py imports files of other names."""
    for build, suffix in (("3_2_0_36bb7fd4a", ""), ("3_3_0_", ""), ("3_5_1", ""), ("3_4_0_abc", ".fusion")):
        found = FileName.parse(tmp_path / f"{name}.HIP.{build}{suffix}.ufdb.txt")
        assert found == (parts, build)


def test_lines_that_are_no_problem_are_counted_by_their_reason(tmp_path):
    (tmp_path / "log").write_text(
        "\n".join([
            LINE.format(n=5, f=0), LINE.format(n=5, f=4), LINE.format(n=5, f=1).replace("-m conv", "-m trans"),
            LINE.format(n=5, f=1).replace("Driver conv ", "Driver bnorm "), f"{LINE.format(n=5, f=1)} -I NHWC -O NCHW",
            LINE.format(n=5, f=1).replace("-k 64 ", ""), LINE.format(n=6, f=1).replace("-c 64", "-c '64"), "nothing",
        ])
    )  # fmt: skip
    read = read_problem_lists([tmp_path / "log"], [Operation.parse(one) for one in OPERATIONS], "NCHW")
    assert [(one.variant, one.N, one.K) for one in read.problems] == [
        ("forward", 5, 64), ("bwd_data", 5, 64), ("forward", 5, 32), ("forward", 6, 64)
    ]  # fmt: skip
    assert {problem.layout for problem in read.problems} == {"NCHW"}
    assert read.notes == ["assumed where lines do not say it (1): -k 32"] and read.refused.total() == 4
    assert any("no model of bwd_weight in fp32" in reason for reason in read.refused)
    (tmp_path / "empty").write_text("nothing\n")
    with pytest.raises(UserError, match="empty"):
        read_problem_lists([tmp_path / "empty"], [])
