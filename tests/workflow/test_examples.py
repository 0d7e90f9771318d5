"""The examples of docs/internals/command-line.md and of every help text run, after a small workflow."""

from __future__ import annotations

import bz2
import re
import shlex
import shutil
import sys

import pyarrow.parquet as pq
import pytest
from small_workflow import ROOT

from tileseer.build import modules
from tileseer.build.compiler import NATIVE_SOURCES
from tileseer.cli import main
from tileseer_emulated import command as emulation
from tileseer_emulated.kernels import KernelVerdict

sys.path.insert(0, str(ROOT / "tests/builders"))
import help_examples
import host_library
from test_replay import find_db_lines

PAGE = (ROOT / "docs/internals/command-line.md").read_text().split("\n## Examples\n")[1]
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
]

ELSEWHERE = {
    "tileseer run": "workflow/test_commands.py",
    "tileseer run -n": "workflow/test_commands.py",
    "tileseer run --arch gfx950_mi355x": "workflow/test_replay.py",
    "tileseer run --arch installed_miopen": "libraries/miopen/test_installed.py",
    "tileseer run results": "workflow/test_replay.py",
    "tileseer ship results/models/sm_90": "workflow/test_replay.py",
    "tileseer select results/models/sm_90": "workflow/test_replay.py",
    "tileseer tune results/models/gfx942_miopen": "libraries/miopen/test_driver_tuning.py",
    "tileseer export hipdnn": "libraries/miopen/test_hipdnn.py",
    "tileseer export miopen": "libraries/miopen/test_miopen_export.py",
    "tileseer crawl --torch": "problems/test_crawl_of_own_model.py",
    "tileseer crawl --onnx": "problems/test_crawl_of_own_model.py",
}
"""Examples of help texts that need more than ``folder`` has: beginning to the tests that run it."""
THERE = [help_examples.words(beginning) for beginning in ELSEWHERE]
HELP = [line for line in help_examples.LINES if shlex.split(line)[1:] not in THERE]
PROBLEM = {"N": 8, "C": 64, "K": 64, "Hi": 56, "Wi": 56, "Y": 3, "X": 3}


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory):
    """A folder with what the commands read; what they write stays in it."""
    path = tmp_path_factory.mktemp("examples")
    for name in ("workflow", "results"):
        (path / name).symlink_to(made[0].folder / name)
    shutil.copytree(made[0].folder / "config", path / "config")
    for side in ("old", "new"):
        (path / side).symlink_to(path / "results/models")
        (path / f"{side}.HIP.fdb.txt").write_text("\n".join(find_db_lines()) + "\n")
    (path / "gfx942130.HIP.fdb.txt.bz2").write_bytes(bz2.compress((path / "old.HIP.fdb.txt").read_bytes()))
    (path / "kernels.txt").write_text(kernel(path) + "\n")
    (path / "problems.csv").write_text(f"{','.join(PROBLEM)}\n{','.join(map(str, PROBLEM.values()))}\n")
    line = "MIOpenDriver convbfp16 -n 8 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -F 1"
    (path / "training.log").write_text(f"epoch 1\n{line}\n")
    if host_library.COMPILER is not None:
        _libraries(path)
    return path


def kernel(folder):
    """Name of a kernel in two dimensions that the models of ``folder`` know."""
    pool = pq.read_table(folder / "results/training/gfx950/forward_bf16/candidates.parquet", columns=["kernel"])
    return next(name for name in pool["kernel"].to_pylist() if "_2d_" in name)


def _libraries(folder):
    """Build the driver for the host, and a few of the fake kernels; a host is too slow for the larger problems."""
    include = ROOT / NATIVE_SOURCES
    text = (ROOT / "tests/builders/fake_kernels.cpp").read_text().replace("problem.C <= 64", "problem.C <= 16")
    few = re.sub(r"^const Registration<.*> (?!good|wrong|segfault;)\w+;\n", "", text, flags=re.MULTILINE)
    assert few.count("const Registration<") == 5
    (folder / "few.cpp").write_text(few)
    for name, source in (("driver.so", include / modules.DRIVER_SOURCE), ("kernels.so", folder / "few.cpp")):
        modules.run_command(
            modules.library_command("host", host_library.COMPILER, "", [source], folder / name, include)
        )


def test_the_page_has_examples():
    assert len(COMMANDS) > 5 and len(HELP) > 20


@pytest.mark.parametrize("beginning", ELSEWHERE)
def test_an_example_that_needs_more_runs_elsewhere(beginning):
    assert f'words("{beginning}")' in (ROOT / "tests" / ELSEWHERE[beginning]).read_text()


def call(command, folder, monkeypatch, capsys):
    """Run a command line in this process, in ``folder``; return exit status, output and errors."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    status = main.main(shlex.split(command.partition(" > ")[0])[1:])
    return status, *capsys.readouterr()


@pytest.mark.parametrize("command", [*COMMANDS, *HELP], ids=lambda text: " ".join(text.split())[9:70])
def test_an_example_answers(folder, command, monkeypatch, capsys):
    needs_driver = "driver.so" in command
    if needs_driver and host_library.COMPILER is None:
        pytest.skip("no host C++ compiler (g++, clang++ or CXX)")
    if "--emulate" in command:
        pytest.importorskip("tinygrad")
        # packages/tileseer_emulated/tests/test_emulated.py executes kernels for real.
        monkeypatch.setattr(
            emulation, "verdicts", lambda _, kernels, jobs: [KernelVerdict(one.name, "ok") for one in kernels]
        )
    status, out, err = call(re.sub(r"\bNAME\b", kernel(folder), command), folder, monkeypatch, capsys)
    # Of the fake kernels some are wrong or crash on purpose, and none is of every kind; a machine may have no compiler.
    says_no = needs_driver or "doctor --configfile" in command
    assert (status or 0) in ((0, 1) if says_no else (0,)), err
    assert out, err


def test_fake_kernels_that_are_wrong_are_named(folder, monkeypatch, capsys):
    if host_library.COMPILER is None:
        pytest.skip("no host C++ compiler (g++, clang++ or CXX)")
    command = "tileseer verify kernels.so --driver driver.so --dtype fp32 --problem N=1,C=8,K=8,Hi=5,Wi=5,Y=3,X=3"
    status, out, _ = call(command, folder, monkeypatch, capsys)
    assert status == 1
    assert re.search(r"^ok    \S+: \d+ elements right", out, re.MULTILINE), out
    assert re.search(r"^FAIL  \S+: \d+ of \d+ elements wrong", out, re.MULTILINE), out
    assert "SIGSEGV" in out
