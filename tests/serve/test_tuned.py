"""Choices that were timed once: the file of Python and C++, who may use them, and several writers at once."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from published_models import LAYER, TEMPLATE, WORD

from tileseer.cli import main
from tileseer.core.errors import UserError
from tileseer.problems.problem import DIMS, Problem, problems_of_rows
from tileseer.serve.selector import NO_CANDIDATE, Selector
from tileseer.serve.tuned import TUNED_HEADER, Choice, is_device, read_choices, remember, tuned_path

PROBLEM = Problem.from_dims("forward", "bf16", **LAYER)
DIMENSIONS = tuple(getattr(PROBLEM, name) for name in DIMS)
PRODUCT = "gfx950_mi355x"


def choice(candidate="kernel@splitk2", device="AMD Instinct MI355X", kind="measured", n=8, time_ms=0.0123456789):
    return Choice((n, *DIMENSIONS[1:]), candidate, time_ms, 3, device, kind)


def test_what_is_remembered_is_read_in_its_order_and_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tuned_path(tmp_path / "models", "forward_bf16")
    assert path == tuned_path(Path("models"), "forward_bf16") == tmp_path / "models.tuned/forward_bf16.tsv"
    assert read_choices(path) == []
    untimed = choice(n=4)._replace(time_ms=0.0, timed=0)
    remember(path, [choice(n=n) for n in (2, 1)])
    remember(path, [choice(n=1, time_ms=9.0), choice(n=3), untimed])
    assert read_choices(path) == [*(choice(n=n) for n in (2, 1, 3)), untimed]
    assert path.read_text().startswith(TUNED_HEADER + "\n") and [*path.parent.iterdir()] == [path]


def lines_of(one):
    """A line of the file, and damaged ones."""
    good = "\t".join(map(str, (*one.dims, one.candidate, one.time_ms, one.timed, one.device, one.device_kind)))
    return good, [
        good[:60],
        good + "\tmore",
        good.replace("measured", "guessed"),
        good.replace("0.01", "-0.01"),
        "\0x",
        good.replace("\t3\t", "\t0\t"),
    ]


def test_damaged_lines_are_skipped_with_one_warning_and_another_table_stays(models, selector, tmp_path, capsys):
    good, damaged = lines_of(choice())
    path = tuned_path(shutil.copytree(models, tmp_path / "models"), "forward_bf16")
    path.parent.mkdir()
    path.write_text("\n".join([TUNED_HEADER, *damaged, good, good[:-3]]))
    assert read_choices(path) == [choice()]
    assert capsys.readouterr().err == f"warning: {path}: skipped 7 damaged lines, first line 2\n"
    remember(path, [choice(n=1)])
    assert path.read_text() == f"{TUNED_HEADER}\n{good}\n{good.replace('8', '1', 1)}\n"
    path.write_text("another table\n")
    with pytest.raises(UserError, match="line 1: the columns are not those"):
        remember(path, [choice()])
    capsys.readouterr()  # a model picks without it
    assert main.main(["select", str(tmp_path / "models"), "--problem", WORD, "--top", "1"]) == 0
    printed = capsys.readouterr()
    assert selector.rank(PROBLEM)[0]["kernel"] in printed.out and path.read_text() == "another table\n"
    assert printed.err.count("warning:") == 1 and "its choices are not used" in printed.err
    path.write_text("\n".join([TUNED_HEADER, good, ""]))
    Selector.read(tmp_path / "models", "forward_bf16")
    assert (
        "1 choices name no candidate of the models, and are not used; first kernel@splitk2" in capsys.readouterr().err
    )
    shutil.rmtree(path.parent)
    path.parent.touch()
    with pytest.raises(UserError, match="tuned: is a file, where the folder"):
        read_choices(path)


REMEMBERS = """
import sys
from pathlib import Path
from tileseer.serve.tuned import Choice, remember
for n in range(int(sys.argv[2]), 80, 2):
    remember(Path(sys.argv[1]), [Choice((n, *[1] * 18), "kernel", 1.5, 2, "GPU", "measured")])
"""


def test_two_processes_that_remember_at_once_lose_nothing(tmp_path, cpp_tuned):
    path = tmp_path / "new/t.tsv"
    writers = [subprocess.Popen([sys.executable, "-c", REMEMBERS, path, str(first)]) for first in (0, 1)]
    writers.append(subprocess.Popen([cpp_tuned, path, "remember", "100", "150"]))
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    read = sorted(read_choices(path))
    assert [one.dims[0] for one in read] == [*range(80), *range(100, 150)]
    assert read[-1] == Choice((149, *[1] * 18), "kernel", 0.3, 3, "AMD Instinct MI300X", "measured")


MAIN = r"""
#include "tuned.hpp"
#include <cstdio>
#include <string>

int main(int count, char** words)
{
    tileseer::TunedChoices choices(words[1]);
    tileseer::TunedDims dims;
    dims.fill(1);
    if(std::string(words[2]) == "remember")
    {
        for(dims[0] = std::stoi(words[3]); dims[0] < std::stoi(words[4]); ++dims[0])
            if(!choices.remember({dims, "kernel", 0.1 + 0.2, 3, " AMD\tInstinct\nMI300X ", "measured"}))
                return 1;
        return 0;
    }
    if(std::string(words[2]) == "list")
    {
        for(dims[0] = 0; dims[0] < std::stoi(words[3]); ++dims[0])
            if(const auto one = choices.find(dims, "GPU", "measured", [](const std::string&) { return true; }))
                std::printf("%d %s %.17g %d\n", dims[0], one->candidate.c_str(), one->time_ms, one->timed);
        return 0;
    }
    for(int place = 3; place < count - 1; ++place)
        dims[place - 3] = std::stoi(words[place]);
    const auto has   = [&](const std::string& candidate) { return candidate != words[count - 1]; };
    const auto found = choices.find(dims, "AMD Instinct MI355X", "measured", has);
    const tileseer::TunedChoice choice = found.value_or(tileseer::TunedChoice{{}, "none", 0.0, 0, "", ""});
    std::printf("%s %.17g %d\n", choice.candidate.c_str(), choice.time_ms, choice.timed);
}
"""


@pytest.fixture(scope="session")
def cpp_tuned(tmp_path_factory):
    """A program that finds and remembers by ``tuned.hpp``."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "main.cpp").write_text(MAIN)
    command = ["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{TEMPLATE.parent}"]
    subprocess.run([*command, "-o", folder / "main", folder / "main.cpp"], check=True)
    return folder / "main"


def found_in_cpp(program, path, has_not="nothing"):
    words = [program, path, "find", *map(str, DIMENSIONS), has_not]
    return subprocess.run(words, capture_output=True, text=True, check=True)


def test_cpp_reads_what_python_writes_and_skips_damage(tmp_path, cpp_tuned):
    path = tmp_path / "t.tsv"
    assert found_in_cpp(cpp_tuned, path).stdout == "none 0 0\n"
    others = [choice(device="AMD Instinct MI300X"), choice(kind="simulated"), choice(n=9)]
    remember(path, [*others, choice(), choice("second")])
    good, damaged = lines_of(choice("third"))
    path.write_text("\n".join([path.read_text().rstrip(), *damaged, good, ""]))
    found = found_in_cpp(cpp_tuned, path)
    assert found.stdout == "kernel@splitk2 0.0123456789 3\n"
    assert found.stderr.count("\n") == found.stderr.count("damaged lines are skipped") == 1
    assert found_in_cpp(cpp_tuned, path, has_not="kernel@splitk2").stdout.startswith("second ")
    path.write_text("another table\n")
    assert found_in_cpp(cpp_tuned, path).stdout == "none 0 0\n"
    assert subprocess.run([cpp_tuned, path, "remember", "1", "2"], check=False).returncode == 1
    assert path.read_text() == "another table\n"


ODD = [*"+-_ \r\t\0\n.e0x\x1b٣²é\ufeff", "e5", "9" * 9, "nan", "inf", "e+400"]


def test_both_read_the_same_of_any_damage(tmp_path, cpp_tuned):
    draw, path = random.Random(51), tmp_path / "t.tsv"
    lines = []
    for n in range(4000):
        time, timed = draw.choice(["0.0123", "3e-05", "7", "0"]), draw.choice("330")
        fields = [str(n), *["1"] * 18, "kernel@splitk2", time, timed, "GPU", "measured"]
        if draw.random() < 0.9:
            at = draw.choice([0, 1, *range(19, len(fields))])
            place = draw.randint(0, len(fields[at]))
            fields[at] = fields[at][:place] + draw.choice(ODD) + fields[at][place + draw.randint(0, 1) :]
        lines.append("\t".join(fields))
    path.write_bytes("\n".join([TUNED_HEADER, *lines]).encode())
    told = subprocess.run([cpp_tuned, path, "list", "4000"], capture_output=True, check=True).stdout.decode()
    read = [one for one in read_choices(path) if (*one.dims[1:], one.device) == (*[1] * 18, "GPU")]
    first = {one.dims[0]: one for one in reversed(read) if one.device_kind == "measured"}
    kept = [f"{n} {first[n].candidate} {first[n].time_ms:.17g} {first[n].timed}" for n in range(4000) if n in first]
    assert 300 < len(kept) < 3500
    assert told.splitlines() == kept


@pytest.mark.parametrize(
    ("device", "product", "same"),
    [
        ("NVIDIA H200", "sm_90_h200", True),
        ("NVIDIA H100 80GB HBM3", "sm_90_h200", False),
        ("NVIDIA GH200 480GB", "sm_90_h200", False),
        ("AMD Instinct MI300X", "gfx942_mi300x", True),
        ("gfx950_mi355x", "gfx950_mi355x", True),
        ("gfx950_mi350x", "gfx950_mi355x", False),
        ("AMD Radeon RX 7900 XTX", "gfx1100_7900xtx", True),
        ("AMD Radeon RX 7900 XT", "gfx1100_7900xtx", False),
        ("AMD Instinct MI250X", "gfx90a_mi250x_gcd", True),
    ],
)
def test_a_device_is_a_product_by_its_name(device, product, same):
    assert is_device(device, product) == same


def with_choices(models, choices, device=None, device_kind="simulated"):
    own = Selector.read(models, "forward_bf16")
    own.spec = own.spec.model_copy(update={"device_kind": device_kind})
    own.use_tuned(choices, device)
    return own


def test_a_tuned_choice_is_selected_on_its_device_alone(models, selector):
    dims = np.array([DIMENSIONS, (9, *DIMENSIONS[1:])])
    before = selector.select(dims)
    other = next(name for name in selector.candidates if name != selector.rank(PROBLEM)[0]["candidate"])
    simulated, real = choice(other, PRODUCT, "simulated"), choice(selector.candidates[0])
    # Of another product, and of a kernel that the model has not; times of a simulated device for a model of others.
    foreign = [choice(other, "AMD Instinct MI350X"), choice("gone", PRODUCT, "simulated")]
    for own in (with_choices(models, foreign), with_choices(models, [simulated], device_kind="recorded")):
        assert own.tuned(PROBLEM) is None and own.select(dims).candidate.tolist() == before.candidate.tolist()
    own = with_choices(models, [simulated, choice(selector.candidates[0], PRODUCT, "simulated")])
    picks = own.select(dims)
    assert own.candidates[picks.candidate[0]] == other == own.tuned(PROBLEM).candidate
    assert picks.known[0] and picks.score[0] == 0 and picks.candidate[1] == before.candidate[1]
    unknown = [one.select(dims, use_known=False).candidate.tolist() for one in (own, selector)]
    assert unknown[0] == unknown[1]
    assert (own.select(dims, pruned_only=True).candidate != NO_CANDIDATE).all()
    # What was timed on a real GPU goes first.
    assert with_choices(models, [simulated, real]).tuned(PROBLEM) == real
    assert with_choices(models, [real], device_kind="recorded").tuned(PROBLEM) == real
    named = choice(other, "gfx950_mi350x", "simulated")
    assert with_choices(models, [named], device="gfx950_mi350x").tuned(PROBLEM) == named


def test_the_command_says_what_was_tuned_and_where(models, selector, capsys):
    path = tuned_path(models, "forward_bf16")
    remember(path, [choice(selector.candidates[2], PRODUCT, "simulated")])
    try:
        assert main.main(["select", str(models), "--problem", WORD, "--top", "2"]) == 0
        line = f"tuned on {PRODUCT} (simulated), best of 3: {selector.candidates[2]}"
        assert capsys.readouterr().out.splitlines()[2] == line
        assert main.main(["select", str(models), "--problem", WORD, "--device", "gfx950_mi350x"]) == 0
        assert "tuned" not in capsys.readouterr().out
    finally:
        path.unlink()


def test_picks_for_another_device_are_those_of_a_sibling(models, capsys):
    selector = Selector.read(models, "forward_bf16", device="AMD Instinct MI350X")
    own = Selector.read(models, "forward_bf16")
    measured = problems_of_rows("forward", "bf16", own.known_dims)
    assert {one.evidence for one in own.outlooks(measured)} == {"inside"}
    assert {(one.evidence, one.gains) for one in selector.outlooks(measured)} == {("outside", False)}
    assert (selector.sibling, own.sibling) == ("AMD Instinct MI350X", "")
    assert selector.select(selector.dims_of(PROBLEM)).candidate == own.select(own.dims_of(PROBLEM)).candidate
    call = ["select", str(models), "--problem", WORD, "--device", "AMD Instinct MI350X"]
    assert main.main(call) == 0 and "a sibling's answer: the times are of" in capsys.readouterr().out
