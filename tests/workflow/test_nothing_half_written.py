"""Whatever stands in an input: a stage or command succeeds, or one message names the file and nothing was written.

``test_damaged_files.py`` has the readers one by one.
"""

import json
import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from damage import changed, damaged, damaged_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stages_by_hand import stages_of

from tileseer.cli import main
from tileseer.core import bundle, parquet

FEW = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
MODELS = "results/models/gfx950"
FOLDER = f"{MODELS}/grouped_conv_forward_bf16_gfx950"
COMMANDS = {
    "score": f"score {MODELS} --problems config/problems/small.csv --kernels kernels.txt --output new/scores.csv",
    "provenance": f"provenance {MODELS}",
    "codegen": "codegen --arch gfx950 --rule-set tiny --variant forward --ndim 2 --dtype bf16 --output new/emitted",
    "select": f"select {MODELS} --variant forward --dtype bf16 --problem N=2,C=64,K=64,Hi=14,Wi=14",
    "verify": f"verify {MODELS}",
}
"""Commands that write, and some that must not."""
INPUTS = {
    "score": ("kernels.txt", "config/problems/small.csv", f"{MODELS}/index.json", f"{FOLDER}/feature_spec.json"),
    "provenance": (f"{MODELS}/provenance.json", f"{MODELS}/index.json"),
    "codegen": ("config/arch_specs.json", "config/rule_sets/full.yaml"),
    "select": (f"{MODELS}/index.json", f"{FOLDER}/candidates.parquet"),
    "verify": (f"{MODELS}/index.json",),
}
EXPENSIVE = {"model", "serving", "publish"}
"""Stages whose work takes long: they get damage that is certain to be refused."""


@pytest.fixture(scope="module")
def world(made, tmp_path_factory):
    """A workflow that has run, with the temporary folder beside it; who runs something here runs it in its folder."""
    place = tmp_path_factory.mktemp("world")
    folder = place / "work"
    for name in ("config", "results"):
        shutil.copytree(made[0].folder / name, folder / name, ignore=shutil.ignore_patterns("recorded"))
    (folder / "workflow").symlink_to(made[0].folder / "workflow")
    (place / "tmp").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(tempfile, "tempdir", str(place / "tmp"))
        files = map(Path, bundle.read_bundle("results/headers/gfx950/forward_bf16/0.tar"))
        names = [file.stem for file in files if file.match("grouped_conv_fwd*_2d_*.cpp")]
        Path("kernels.txt").write_text("\n".join(names) + "\n")
        yield folder


@pytest.fixture(scope="module")
def stages(made):
    """The stages by their names."""
    return {stage.name: stage for stage in stages_of(made[0].folder)}


def snapshot(place):
    """Return every file and folder, with what would tell a change; but for journals and indexes.

    Journals keep what was measured. An index is whole wherever it is, and is made anew when it does not fit.
    """
    paths = (path for path in place.rglob("*") if "journals" not in path.parts and path.suffix != ".index")
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) if path.is_file() else None for path in paths}


class Trial:
    """The outputs of a stage are away; afterwards they and the journals are as they were."""

    def __init__(self, world, outputs):
        self.place, self.outputs = world.parent, [world / name for name in outputs]
        self.kept, self.folder = {}, world / "results/journals"
        self.journals = {path: path.read_bytes() for path in files_of(self.folder)}

    def __enter__(self):
        for path in self.outputs:
            if path.exists():
                self.kept[path] = shutil.move(path, self.place.parent / f"aside {len(self.kept)}")
        return self

    def __exit__(self, *exception):
        for path in self.outputs:
            remove(path)
        for path, aside in self.kept.items():
            shutil.move(aside, path)
        for path in files_of(self.folder):
            path.unlink()
        for path, content in self.journals.items():
            path.write_bytes(content)


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def replaced(path, content):
    """A file has another content meanwhile; None stands for a folder in its place."""
    sound = path.read_bytes()
    path.unlink()
    path.mkdir() if content is None else path.write_bytes(content)
    try:
        yield
    finally:
        remove(path)
        path.write_bytes(sound)


def judge(call, place, outputs, damaged, capfd, refused=False):
    """Run something; it is done as a whole, or it names the damaged file and leaves everything as it was."""
    before = snapshot(place)
    capfd.readouterr()
    try:
        ended = call()
    except SystemExit as end:
        ended = end.code
    said = capfd.readouterr().err
    after = snapshot(place)
    assert "Traceback" not in said and "Warning" not in said
    assert not [path for path in after if path.name == "pwned" or path.name.endswith(".tmp")]
    new = {path for path in after if path not in before or (after[path] != before[path] and after[path])}
    gone = set(before) - set(after)
    assert not gone
    if ended in (0, 1, 3) and not refused:
        expected = {path for output in outputs for path in (output.parent, output)}
        strays = [path for path in new - expected if not any(path.is_relative_to(output) for output in outputs)]
        assert not strays
        return
    assert ended == 2
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert errors and damaged.name in errors[0], said
    assert not new, new


def judge_stage(stage, name, content, world, capfd):
    path = world / name
    with Trial(world, stage.outputs) as trial, replaced(path, content):
        judge(stage.run, trial.place, trial.outputs, path, capfd)


def test_each_stage_and_each_table_of_the_user(world, stages, capfd):
    def with_damage(stage, name):
        @FEW
        @given(data=st.data())
        def judged(data):
            few = st.sampled_from((b"", b"\0" * 99, b"nonsense\n" * 9))
            content = data.draw(few) if stage.name in EXPENSIVE else damaged(data, world / name)
            judge_stage(stage, name, content, world, capfd)

        judged()

    for stage in stages.values():
        for name in stage.inputs:
            if name.startswith("config/"):
                with_damage(stage, name)


def test_coefficients_that_make_impossible_times_are_refused(world, stages, capfd):
    stage = stages["benchmark"]
    path = world / "config/simulated_device.yaml"
    table = changed(yaml.safe_load(path.read_text()), ("iteration", "latency"), 1e308, rename=False)
    with Trial(world, stage.outputs) as trial, replaced(path, yaml.safe_dump(table).encode()):
        judge(stage.run, trial.place, trial.outputs, path, capfd, refused=True)


def test_a_table_of_archs_without_an_operator_is_named(world, capfd):
    path = world / "config/arch_specs.json"
    specs = json.loads(path.read_text())
    del specs["operators"]["conv_fwd"]
    with replaced(path, json.dumps(specs).encode()):
        judge(lambda: main.main(COMMANDS["codegen"].split()), world.parent, (), path, capfd, refused=True)


def files_of(path):
    return [file for file in path.rglob("*") if file.is_file()]


def test_each_stage_and_each_file_that_an_earlier_one_made(world, stages, capfd):
    for stage in stages.values():
        for name in stage.inputs:
            for content in (b"", b"nonsense\n" * 9) if name.startswith("results/") else ():
                judge_stage(stage, name, content, world, capfd)


@pytest.mark.parametrize(("command", "name"), [pytest.param(c, n, id=f"{c} {n}") for c in COMMANDS for n in INPUTS[c]])
@settings(FEW, max_examples=5)
@given(data=st.data())
def test_a_command_and_its_input(command, name, data, world, capfd):
    path = world / name
    content = damaged_bytes(data, path.read_bytes()) if path.suffix == ".parquet" else damaged(data, path)
    try:
        with replaced(path, content):
            judge(lambda: main.main(COMMANDS[command].split()), world.parent, [world / "new"], path, capfd)
    finally:
        remove(world / "new")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_whose_folder_has_a_hostile_name(command, world, capfd):
    hostile = world.parent / "a b 'c' \"d\" $(touch pwned) `touch pwned`; touch pwned\n{0} %s é☃"
    os.symlink(world, hostile)
    try:
        words = [
            str(hostile / word) if (world / word).exists() or word.startswith("new/") else word
            for word in COMMANDS[command].split()
        ]
        if command == "codegen":
            words += ["--config", str(hostile / "config")]
        before = snapshot(world.parent)
        assert main.main(words) in (0, 3), capfd.readouterr().err
        assert "Traceback" not in capfd.readouterr().err
        assert not list(world.parent.rglob("pwned"))
        for path in set(snapshot(world.parent)) - set(before):
            assert path.is_relative_to(world / "new"), path
    finally:
        remove(world / "new")
        hostile.unlink()


@pytest.mark.parametrize("content", [b"", b"nonsense\n" * 9, b"\0" * 99], ids=["empty", "foreign", "zeros"])
def test_a_damaged_journal_of_another_chunk(content, world, stages, capfd):
    folder, stage = world / "results/journals/gfx950/forward_bf16", stages["benchmark"]
    with Trial(world, stage.outputs) as trial, replaced(folder / "1.1.parquet", content):
        # Nothing measured yet, so the others are looked through.
        (folder / "0.1.parquet").unlink()
        judge(stage.run, trial.place, trial.outputs, folder / "1.1.parquet", capfd, refused=True)


ALIASES = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join(9 * [f'*a{n - 1}'])}]\n" for n in range(1, 13))
SHAPES = {
    "nested": b"[" * 200_000,
    "nested values": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    "a huge number": b'{"arch": ' + b"9" * 20_000 + b"}",
    "a value of itself": b"a: &a [*a]",
    "aliases": ALIASES.encode(),
    "a folder": None,
}


@pytest.fixture(params=["as it is", "raised"])
def recursion(request):
    """Run with Python's limit of recursion, and with a higher one: packages that a program imports may raise it."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before if request.param == "as it is" else 10_000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("command", "name"), [pytest.param(c, n, id=f"{c} {n}") for c in COMMANDS for n in INPUTS[c]])
def test_a_command_and_an_input_of_an_impossible_shape(command, name, shape, world, capfd, recursion):
    path = world / name
    if path.suffix in (".csv", ".txt") and shape != "a folder":
        return
    # What is wrong is what verify is asked for.
    with replaced(path, SHAPES[shape]):
        judge(lambda: main.main(COMMANDS[command].split()), world.parent, (), path, capfd, command != "verify")


@pytest.mark.parametrize("command", sorted(COMMANDS))
@pytest.mark.parametrize(
    ("error", "ended", "said"),
    [(KeyboardInterrupt, 130, "interrupted\n"), (MemoryError, 2, "error: there is not enough memory")],
)
def test_an_interrupt_and_an_input_without_end_are_one_line(command, error, ended, said, world, capfd, monkeypatch):
    def stopped(*_):
        raise error

    monkeypatch.setattr(main.module(command.split()[0]), "run", stopped)
    assert main.main(COMMANDS[command].split()) == ended
    shown = capfd.readouterr().err
    assert shown.startswith(said) and shown.count("\n") == 1


def test_a_table_whose_name_is_no_text(world):
    path = world / os.fsdecode(b"results/\xff\xfe.parquet")
    table = parquet.read_table(world / "results/problems/forward_bf16.parquet")
    parquet.write_table(table, path)
    assert parquet.read_table(path).equals(table)
    path.unlink()
