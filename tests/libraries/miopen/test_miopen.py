"""MIOpen's solvers: names, limits, the import of both formats of a find-db, and the recording that is replayed."""

import bz2
import contextlib
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from repository import CONFIG, GPUS, ROOT

from tileseer.cli import main
from tileseer.core import documents
from tileseer.core.errors import UserError
from tileseer.data.dataset import Dataset
from tileseer.data.provenance import Recording
from tileseer.facts import hardware
from tileseer.facts.model import ModelSettings
from tileseer.facts.operations import DTYPES, VARIANTS
from tileseer.learn import features
from tileseer.learn import training as stage
from tileseer.libraries import candidates, registry
from tileseer.libraries.miopen import find_db as find_db_format
from tileseer.libraries.miopen import recording
from tileseer.libraries.miopen.find_db import Key, UnusableError
from tileseer.libraries.miopen.kernel import Solver
from tileseer.libraries.miopen.rules import RULES
from tileseer.libraries.miopen.solvers import SOLVERS, algorithm_word, facts_of
from tileseer.libraries.miopen.workspace import ALIGNMENT, workspace
from tileseer.libraries.names import read_kernel_name
from tileseer.libraries.registry import check_support
from tileseer.problems.operation import Operation
from tileseer.problems.problem import Problem, problem_frame, problems_of_frame

ARCH = "gfx942_miopen"
FORWARD = "64-56-56-3x3-128-28-28-8-1x1-2x2-1x1-0-NCHW-FP16-F"
GRADIENT = "128-28-28-3x3-64-56-56-8-1x1-2x2-1x1-0-NCHW-FP16-B_g2"
DEEP = "32-8-28-28-3x1x1-64-8-28-28-2-1x0x0-1x1x1-1x1x1-0-NCDHW-FP32-W"
NEW = (
    f"{FORWARD}=GemmFwdRest:0.25,4096,miopenConvolutionFwdAlgoGEMM;"
    "ConvBinWinogradRxSf3x2:0.125,0,miopenConvolutionFwdAlgoWinograd\n"
)
OLD = (
    f"{GRADIENT}=miopenConvolutionBwdDataAlgoGEMM:GemmBwdRest,0.5,0,miopenConvolutionBwdDataAlgoGEMM,<unused>;"
    "miopenConvolutionBwdDataAlgoDirect:ConvDirectNaiveConvBwd,2,0,miopenConvolutionBwdDataAlgoDirect,not used\n"
)
LAYER = Problem.from_dims(
    "forward", "fp16", N=8, C=64, K=128, Hi=56, Wi=56, Y=3, X=3, stride_h=2, stride_w=2, pad_h=1, pad_w=1
)


def times_of(found):
    """The milliseconds of what was read, by problem and solver."""
    problems = problems_of_frame(found.problems)
    rows = found.times[["problem", "solver", "milliseconds"]].itertuples(index=False, name=None)
    return {(problems[row], solver): time for row, solver, time in rows}


@pytest.fixture
def read(tmp_path):
    def of(text, name="gfx942130.HIP.fdb.txt"):
        path = tmp_path / name
        path.write_bytes(bz2.compress(text.encode()) if name.endswith(".bz2") else text.encode())
        return recording.read_find_dbs([path])

    return of


def test_names_are_those_of_the_registry_with_the_operation_before_them():
    solver = Solver("forward", "fp32", 2, "ConvWinograd3x3MultipassWrW<3-4>")
    assert (
        read_kernel_name(solver.name, ARCH).kernel == solver
        and registry.library_of_kernels([solver.name]).name == "miopen"
    )
    assert (
        read_kernel_name("fft", ARCH, Operation("bwd_data", "fp32")).kernel.name == "miopen_conv_bwd_data_fp32_2d_fft"
    )
    with pytest.raises(UserError, match="fft"):
        read_kernel_name("fft", ARCH)
    assert read_kernel_name("miopen_conv_fwd_fp32_2d_ConvOfTomorrow", ARCH).kernel.solver == "ConvOfTomorrow"
    with pytest.raises(UserError, match=r"a solver is expected"):
        read_kernel_name("miopen_conv_fwd_fp32_2d_2", ARCH)
    assert len({facts.number for facts in SOLVERS.values()}) == len(SOLVERS)


def test_what_the_library_lacks_is_said():
    assert registry.library_of_arch(ARCH).name == "miopen"
    assert registry.library_of_arch("gfx942").name == "ck_tile"
    data = SimpleNamespace(
        arch=ARCH, operation="forward_fp16", device_kind="recorded", candidates=pd.DataFrame(), problems=()
    )
    chosen = stage.settings_for(ModelSettings(), data)
    assert (chosen.features, chosen.prior) == ("miopen", "none")
    with pytest.raises(UserError, match="its kernels have no formula"):
        stage.settings_for(ModelSettings(prior="formula"), data)


def test_both_formats_are_read(read):
    new, old = read(NEW), read(OLD)
    assert times_of(new) == {(LAYER, "GemmFwdRest"): 0.25, (LAYER, "ConvBinWinogradRxSf3x2"): 0.125}
    gradient, solvers = next(iter(times_of(old)))[0], [solver for _, solver in times_of(old)]
    assert (gradient.variant, gradient.C, gradient.K, gradient.G, gradient.Hi) == ("bwd_data", 64, 128, 2, 56)
    assert solvers == ["GemmBwdRest", "ConvDirectNaiveConvBwd"] and not new.refused + old.refused
    assert times_of(read(NEW, "gfx942130.HIP.fdb.txt.bz2")) == times_of(new)
    assert times_of(read(NEW, "user.ufdb.txt")) == times_of(new)
    deep = read(f"{DEEP}=GemmWrwUniversal:1,0,x\n")
    assert [(p.ndim, p.Di, p.Z, p.pad_d, p.C, p.K) for p, _ in times_of(deep)] == [(3, 8, 3, 1, 64, 32)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("no database", "no KEY=VALUES"),
        ("64-56=GemmFwdRest:1,0,x", "the key has another form"),
        (f"{FORWARD.replace('NCHW', 'NHWC-NCHW-NHWC')}=GemmFwdRest:1,0,x", "layout NHWC-NCHW-NHWC"),
        (f"{FORWARD.replace('NCHW', 'NHWC')}=GemmFwdRest:1,0,x", "layout NHWC:"),
        (f"{FORWARD.replace('-0-NCHW', '-1-NCHW')}=GemmFwdRest:1,0,x", "the key has another form"),
        (f"{FORWARD.replace('FP16', 'INT8')}=GemmFwdRest:1,0,x", "data type INT8"),
        (f"{FORWARD.replace('28-28-8', '30-28-8')}=GemmFwdRest:1,0,x", "the output's size does not follow"),
        ("8-1-9-9-1x3x3-8-1-7-7-2-0x0x0-1x1x1-1x1x1-0-NCDHW-FP32-F=fft:1,0,x", "a 3D problem without depth"),
        (f"{FORWARD}_g5=GemmFwdRest:1,0,x", "no convolution"),
        (f"{FORWARD}=GemmFwdRest:0,0,x", "the time is not between 1 ns and an hour"),
        (f"{FORWARD}=GemmFwdRest:1e-60,0,x", "the time is not between 1 ns and an hour"),
        (f"{FORWARD.replace('64-56-56', '99999999999-56-56')}=GemmFwdRest:1,0,x", "no convolution"),
        (f"{FORWARD}=GemmFwdRest:0.2", "the entry has another form"),
        (f"{FORWARD}=GemmFwdRest:nan,0,x", "the time is no number"),
        (f"{FORWARD}=GemmFwdRest:fast,0,x", "the time is no number"),
        (f"{FORWARD}=GemmFwdRest", "the entry has another form"),
        (f"{FORWARD}=Conv of nobody:1,0,x", "a solver's name has another form"),
        (f"{FORWARD}=GemmFwdRest:1,0,x", "this problem and solver already have a time"),
    ],
)
def test_what_is_no_measurement_is_refused_with_its_line(read, line, reason):
    found = read(f"{NEW}{line}\n{OLD}")
    assert len(found.times) == 4
    (refused,) = found.refused
    assert refused.line == 2 and refused.reason.startswith(reason)


extents = st.integers(1, 40)


@st.composite
def problems(draw):
    deep, groups = draw(st.booleans()), draw(st.integers(1, 4))
    dims = {"N": draw(extents), "C": groups * draw(extents), "K": groups * draw(extents), "G": groups}
    for image, extent, axis in [("Hi", "Y", "h"), ("Wi", "X", "w"), *([("Di", "Z", "d")] if deep else [])]:
        taps, dilation = draw(st.integers(1, 5)), draw(st.integers(1, 2))
        dims |= {extent: taps, f"dilation_{axis}": dilation, f"stride_{axis}": draw(st.integers(1, 3))}
        dims |= {f"pad_{axis}": draw(st.integers(0, 2)), image: draw(extents) + dilation * (taps - 1)}
    return Problem.from_dims(draw(st.sampled_from(VARIANTS)), draw(st.sampled_from(DTYPES)), **dims)


@settings(max_examples=200, deadline=None)
@given(problems(), st.sampled_from(["", "NHWC"]))
def test_a_key_says_its_problem_and_its_layout(problem, layout):
    problem = problem.with_layout(layout)
    text = str(Key.of(problem))
    assert Key.parse(text).problem() == problem
    assert str(Key.parse(text)) == text
    assert ("-NHWC-" in text.replace("NDHWC", "NHWC")) == (layout == "NHWC")


@settings(max_examples=50, deadline=None)
@given(st.from_regex(find_db_format.FORM, fullmatch=True))
def test_every_key_is_written_as_it_was_read(text):
    try:
        key = Key.parse(text)
    except UnusableError:
        return  # dimensionalities that differ
    assert str(key) == text
    with contextlib.suppress(UnusableError):
        assert str(Key.of(key.problem())) == text


def test_lines_of_miopen_are_written_as_they_were_read():
    text = (ROOT / "tests/data/miopen_find_db.txt").read_text()
    kinds, equal = set(), 0
    for line in text.splitlines():
        name, _, values = line.partition("=")
        key, entries = Key.parse(name), [recording.parse_entry(value) for value in values.split(";")]
        assert f"{Key.of(key.problem())}={';'.join(map(str, entries))}" == line
        for entry in entries:
            assert algorithm_word(entry.solver, key.direction) == entry.algorithm
            size, recorded = workspace(entry.solver, key.problem()), int(entry.workspace)
            # Older releases did not align the parts of a workspace.
            assert size is None or recorded <= size < recorded + 4 * ALIGNMENT
            equal += size == recorded
        kinds.add((key.layouts[0], key.dtype, key.direction, key.groups > 1))
    assert text.count("\n") > 300 and len(kinds) > 30 and equal > 0.9 * text.count(":")


def run(*arguments):
    return main.main(["import", "find-db", *map(str, arguments), "--config", str(CONFIG)])


def test_the_import_is_a_recording_that_the_workflow_replays(tmp_path, capsys):
    path, folder = tmp_path / "gfx942130.HIP.fdb.txt", tmp_path / "recorded"
    path.write_text(NEW + "broken line\n" + OLD)
    assert run(path, "--arch", "gfx942", "--output", folder, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["problems"], told["times"], told["refused"]) == (2, 4, {"no KEY=VALUES": 1})
    assert (folder / "refused.tsv").read_text().splitlines()[1].endswith("\t2\tno KEY=VALUES\tbroken line")
    data = Dataset.read(folder / "forward_fp16")
    assert dict(zip(data.candidates["kernel"][data.candidate], data.latency_ms, strict=True)) == {
        "miopen_conv_fwd_fp16_2d_GemmFwdRest": 0.25,
        "miopen_conv_fwd_fp16_2d_ConvBinWinogradRxSf3x2": 0.125,
    }
    assert data.problems[["split", "problem_key"]].to_numpy().tolist() == [["train", LAYER.key]]
    assert run(path, "--arch", "gfx942", "--output", folder) == 2
    assert "exists already" in capsys.readouterr().err


def test_a_solver_that_nobody_knows_is_a_candidate_so_that_the_fastest_stays_it(tmp_path, capsys):
    path, folder = tmp_path / "gfx942130.HIP.fdb.txt", tmp_path / "recorded"
    known = "ConvDirectNaiveConvFwd:7.4,0,miopenConvolutionFwdAlgoDirect"
    path.write_text(
        f"{FORWARD}={known};ConvHipConv<2-3>:0.14,0,miopenConvolutionFwdAlgoDirect\n"
        f"{FORWARD.replace('-8-', '-9-')}={known};a b:0.1,0,x\n"  # nothing is known of the fastest one
    )
    assert run(path, "--arch", "gfx942", "--output", folder, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["times"], told["refused"]) == (2, {"a solver's name has another form": 1})
    data = Dataset.read(folder / "forward_fp16")
    best = data.candidates["candidate"].iloc[data.candidate[data.efficiency.argmax()]]
    assert best == "miopen_conv_fwd_fp16_2d_ConvHipConv<2-3>" and read_kernel_name(best, ARCH).kernel.name == best
    assert (check_support(data.problems, data.candidates, "forward") == 0).all()
    numbers = {name: facts_of(name).number for name in (*SOLVERS, "ConvHipConv<2-3>", "ConvDepthwiseFwd2D")}
    assert len(set(numbers.values())) == len(numbers)
    assert facts_of("TransposedConvWinoFuryRxS<2-3>").algorithm == "winograd"
    assert algorithm_word("ConvHipConv<2-3>", "F") is None


@pytest.mark.parametrize(
    ("name", "asked", "arch", "device", "units"),
    [
        ("gfx942130.HIP", "gfx942", "gfx942_miopen", "gfx942_mi300x", 304),
        ("gfx94250.HIP.3_2_0_x", "gfx942", "gfx942_80_miopen", "gfx942_80", 80),  # MI308X
        ("gfx942_38.HIP", "gfx942_cpx_miopen", "gfx942_cpx_miopen", "gfx942_38", 38),  # a partition
        ("gfx942e4.HIP", "gfx942", "gfx942_228_miopen", "gfx942_228", 228),  # MI300A
        ("gfx90a6e.HIP", "gfx90a", "gfx90a_110_miopen", "gfx90a_mi250x_gcd", 110),
        ("gfx1201_32.HIP", "gfx1201", "gfx1201_miopen", "gfx1201_9070xt", 64),
        ("gfx110136.HIP", "gfx1101", "gfx1101_54_miopen", "gfx1101_54", 54),  # as installations name it
        ("gfx1030_36.HIP", "gfx1030", "gfx1030_72_miopen", "gfx1030_72", 72),
    ],
)
def test_the_gpu_is_that_of_the_files_name(tmp_path, capsys, name, asked, arch, device, units):
    path, folder = tmp_path / f"{name}.fdb.txt", tmp_path / "recorded"
    path.write_text(NEW)
    assert run(path, "--arch", asked, "--output", folder, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["arch"], told["device"]) == (arch, device)
    is_new = (folder / "hardware.yaml").exists()
    table = folder / "hardware.yaml" if is_new else CONFIG / "hardware.yaml"
    product = hardware.read_hardware(table, device)
    assert (product.compute_units, product.arch) == (units, hardware.target(asked))
    assert is_new == (device not in GPUS)
    assert Dataset.read(folder / "forward_fp16").device == device
    taken = documents.read_document(folder / "recording.json", Recording).taken
    assert taken.library == "MIOpen (version not known)"


def test_a_recording_names_the_version_that_was_measured(tmp_path, capsys):
    first, other = (tmp_path / f"gfx942130.HIP.{build}.ufdb.txt" for build in ("3_5_2_abc", "3_4_0_abc"))
    for path in (first, other):
        path.write_text(NEW)
    assert run(first, "--arch", "gfx942", "--output", tmp_path / "a") == 0
    assert "times taken with: library MIOpen 3.5.2" in capsys.readouterr().out
    assert run(first, other, "--arch", "gfx942", "--output", tmp_path / "b") == 2
    assert "3.4.0, 3.5.2: give the one version of MIOpen that measured" in capsys.readouterr().err
    assert run(first, other, "--arch", "gfx942", "--release", "3.6", "--output", tmp_path / "b") == 0
    assert documents.read_document(tmp_path / "b/recording.json", Recording).taken.library == "MIOpen 3.6"


def test_files_of_two_gpus_and_names_of_other_kernels_are_refused(tmp_path, capsys):
    first, second = (tmp_path / f"{name}.HIP.fdb.txt" for name in ("gfx942130", "gfx94250"))
    for path in (first, second):
        path.write_text(NEW)

    def told(*arguments):
        assert run(*arguments, "--output", tmp_path / "recorded") == 2
        return capsys.readouterr().err

    assert "80 compute units, others of 304" in told(first, second, "--arch", "gfx942")
    assert "--arch gfx942_cpx: give a target" in told(first, "--arch", "gfx942_cpx")
    assert "has 304 compute units, but the files" in told(second, "--arch", "gfx942", "--device", "gfx942_mi300x")
    assert not (tmp_path / "recorded").exists()


def test_a_layer_in_two_layouts_is_imported_as_two_problems(tmp_path, capsys):
    path, folder = tmp_path / "gfx942130.HIP.fdb.txt", tmp_path / "recorded"
    last = FORWARD.replace("NCHW", "NHWC-NHWC-NHWC")
    path.write_text(f"{NEW}{last}=ConvHipImplicitGemmFwdXdlops:0.0625,0,miopenConvolutionFwdAlgoImplicitGEMM\n")
    assert run(path, "--arch", "gfx942", "--output", folder, "--json") == 0
    assert json.loads(capsys.readouterr().out)["problems"] == 2
    data = Dataset.read(folder / "forward_fp16")
    assert dict(zip(data.problems["layout"], data.problems["problem_key"], strict=True)) == {
        "": LAYER.key,
        "NHWC": LAYER.with_layout("NHWC").key,
    }
    # MIOpen runs the one solver on NHWC alone, the others on NCHW alone.
    able = check_support(data.problems, data.candidates, "forward") == 0
    assert able.sum() == len(data.problem) == 3 and able[data.problem, data.candidate].all()


@pytest.mark.parametrize(
    ("name", "content", "arch", "message"),
    [
        ("gfx90a68.HIP.fdb.txt", NEW.encode(), "gfx942", "its name is of gfx90a, not of gfx942"),
        ("gfx942130.HIP.fdb.txt.bz2", bz2.compress(NEW.encode())[:-9], "gfx942", "damaged"),
        ("gfx942130.HIP.fdb.txt", b"BZh91AY&SY nothing", "gfx942", "damaged"),
        ("gfx942130.db.txt", b"\xff\xfe", "gfx942", "no text"),
        ("some.txt", b"[core]\nkey=value\n", "gfx942", "it contains no measured time; line 1: no KEY=VALUES"),
        ("absent", None, "gfx942", "there is no such file"),
        ("user.ufdb.txt", NEW.encode(), "gfx1030", "name one with --device"),
    ],
)
def test_a_file_that_is_no_database_leaves_nothing(tmp_path, capsys, name, content, arch, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert run(tmp_path / name, "--arch", arch, "--output", tmp_path / "made") == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == [name] * (content is not None)


@pytest.mark.parametrize("operation", ["forward_fp16", "bwd_weight_fp32"])
def test_the_shipped_recording_is_replayed_and_no_limit_refuses_what_ran(operation):
    data = Dataset.read(CONFIG / "recorded" / ARCH / operation)
    assert data.ok.all() and len(data.problems) > 1000 and np.bincount(data.problem).max() <= 6
    verdicts = check_support(data.problems, data.candidates, operation.rpartition("_")[0])
    refused = {RULES.names[verdict] for verdict in np.unique(verdicts[data.problem, data.candidate])}
    # Tensors of 2 GiB were timed by solvers that were reported to be wrong there.
    assert refused <= {"", "offsets"} and (verdicts > 0).any()


@pytest.mark.parametrize(("changed", "kept"), [({"N": 128}, True), ({"N": 256}, False), ({"C": 256, "N": 64}, False)])
def test_a_solver_that_counts_in_32_bits_is_no_candidate_of_a_tensor_of_2_gib(changed, kept):
    dims = {"N": 256, "C": 64, "K": 64, "Hi": 256, "Wi": 256, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1} | changed
    problem = Problem.from_dims("forward", "fp16", **dims)
    solvers = ("ConvAsmImplicitGemmGTCDynamicFwdXdlopsNHWC", "ConvDirectNaiveConvFwd", "GemmFwdRest")
    names = [f"miopen_conv_fwd_fp16_2d_{solver}" for solver in solvers]
    pool = candidates.with_fields(pd.DataFrame({"kernel": names, "split_k": 1}))
    verdicts = check_support(problem_frame([problem]), pool, "forward")[0]
    assert (verdicts == 0).tolist() == [kept, True, kept]


def test_features_know_the_problem_and_the_solver():
    pool = candidates.with_fields(pd.DataFrame({"kernel": [Solver("forward", "fp16", 2, "fft").name], "split_k": 1}))
    row = features.Features.of("miopen", GPUS["gfx942_mi300x"]).matrix(
        problem_frame([LAYER]), pool, np.zeros(1, int), np.zeros(1, int)
    )[0]
    found = dict(zip(features.feature_set("miopen").names, row, strict=True))
    assert np.isfinite(row).all()
    assert found["solver"] == 34 and found["out_h"] == 28 and found["pixels"] == 784
    assert found["fill_out_h_3"] == np.float32(28 / 30) and found["power_group_k"] == 128


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x" * 2**13, "a line of 4,096 bytes"),
        ("\n" * (2**14 + 1), "more than 16,384 bytes"),
        ("x\n" * 1001, "line 1001: there are more than 1,000 entries"),
    ],
    ids=["line", "size", "entries"],
)
def test_a_bomb_is_refused_before_it_fills_the_memory(text, message, read, monkeypatch):
    monkeypatch.setattr(find_db_format, "LARGEST", 2**14)
    monkeypatch.setattr(find_db_format, "LONGEST_LINE", 2**12)
    monkeypatch.setattr(recording, "MOST_ENTRIES", 1000)
    with pytest.raises(UserError, match=message):
        read(text, "a.fdb.txt.bz2")
