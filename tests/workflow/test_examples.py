"""The examples of docs/command-line.md run, after a small workflow and with fake kernels in the place of a GPU."""

from __future__ import annotations

import re
import shlex
import sys

import pytest
from small_workflow import ROOT

from tileseer.cli import main
from tileseer.compile import native

sys.path.insert(0, str(ROOT / "tests/bench"))
import host_library

PAGE = (ROOT / "docs/command-line.md").read_text().split("\n## Examples\n")[1]
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
]


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory):
    """A folder with what the commands read; what they write stays in it."""
    path = tmp_path_factory.mktemp("examples")
    for name in ("config", "workflow", "results"):
        (path / name).symlink_to(made[0].folder / name)
    if host_library.COMPILER is not None:
        _libraries(path)
    return path


def _libraries(folder):
    """Build the driver for the host, and a few of the fake kernels; a host is too slow for the larger problems."""
    include = ROOT / native.SOURCES
    text = (ROOT / "tests/bench/fake_kernels.cpp").read_text().replace("problem.C <= 64", "problem.C <= 16")
    few = re.sub(r"^const Registration<.*> (?!good|wrong|segfault;)\w+;\n", "", text, flags=re.MULTILINE)
    assert few.count("const Registration<") == 5
    (folder / "few.cpp").write_text(few)
    for name, source in (("driver.so", include / native.DRIVER_SOURCE), ("kernels.so", folder / "few.cpp")):
        native.build(native.command("host", host_library.COMPILER, "", [source], folder / name, include))


def test_the_page_has_examples():
    assert len(COMMANDS) > 15


def call(command, folder, monkeypatch, capsys):
    """Run a command line in this process, in ``folder``; return exit status, output and errors."""
    monkeypatch.chdir(folder)
    status = main.main(shlex.split(command)[1:])
    return status, *capsys.readouterr()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda text: " ".join(text.split())[11:70])
def test_a_command_of_the_page_answers(folder, command, monkeypatch, capsys):
    needs_driver = "driver.so" in command
    if needs_driver and host_library.COMPILER is None:
        pytest.skip("no host C++ compiler (g++, clang++ or CXX)")
    status, out, err = call(command, folder, monkeypatch, capsys)
    # Of the fake kernels some are wrong or crash on purpose, and none is of every kind; some rules fail on purpose.
    assert status in ((0, 1) if needs_driver or "explain config" in command else (0,)), err
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
