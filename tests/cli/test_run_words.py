"""The words after ``tileseer run``: targets and flags in any order, and one line for each fault."""

import shlex

import pytest

from tileseer.cli import main
from tileseer.cli.run_words import BARE, LISTS, Words

CALLS = {
    "results/models/a --cores 4": (["results/models/a"], ["--cores", "4"], [], {}),
    "--configfile a.yaml b.json results/models/a -n": (["results/models/a"], ["-n"], ["a.yaml", "b.json"], {}),
    "--configfile=a.yaml all": (["all"], [], ["a.yaml"], {}),
    "--config arch=gfx950 results/models/a": (["results/models/a"], [], [], {"arch": "gfx950"}),
    "-n results/models/a -j4 results/models/b": (["results/models/a", "results/models/b"], ["-n", "-j4"], [], {}),
    "-R model results/models/a -np": (["results/models/a"], ["-R", "model", "-np"], [], {}),
    "--forcerun results/models/a": ([], ["--forcerun", "results/models/a"], [], {}),
    "--quiet results/models/a": (["results/models/a"], ["--quiet"], [], {}),
    "--resources gpu=2 results/models/a": (["results/models/a"], ["--resources", "gpu=2"], [], {}),
    "--until configs -- all": (["all"], ["--until", "configs"], [], {}),
    "--report out.zip": ([], ["--report", "out.zip"], [], {}),
    "-C model='{seed: 3}' publish.replace=true": ([], [], [], {"model": {"seed": 3}, "publish": {"replace": True}}),
    "--config a.b=1 a.c=[x,2] a.b=": ([], [], [], {"a": {"b": None, "c": ["x", 2]}}),
}


@pytest.mark.parametrize("call", CALLS)
def test_targets_and_flags_have_any_order(call):
    words = Words.parse(shlex.split(call))
    targets, flags, files, settings = CALLS[call]
    assert (words.targets, words.flags, words.settings) == (targets, flags, settings)
    assert [str(path) for path in words.config_files] == files


def test_flags_take_as_many_words_as_those_of_snakemake():
    cli = pytest.importorskip("snakemake.cli")
    nargs = {name: action.nargs for action in cli.get_argument_parser()._actions for name in action.option_strings}
    assert {name for name, count in nargs.items() if count in ("+", "*")} == LISTS
    assert {nargs[name] for name in BARE} == {0}


FAULTS = {
    "--configfile hop.yaml": "--configfile: hop.yaml: there is no such file; do you mean hip.yaml?",
    "--configfile": "--configfile: a file has to follow, such as config/hip.yaml",
    "--configfile folder": "folder: cannot be read: Is a directory",
    "--configfile list.yaml": "list.yaml: should have fields such as arch: gfx950, but it is ['a']",
    "--configfile torn.yaml": "torn.yaml: is not YAML: while parsing a flow sequence at line 1, column 7",
    "--config arch": "--config arch: write KEY=VALUE, such as benchmark.seed=3",
    "--config 1x=2": "--config 1x=2: write KEY=VALUE",
    "--config arch=[": "--config arch: is not YAML:",
    "--config __use_yte__=true": "__use_yte__ lets the file run code",
    "--resources gpu": "--resources gpu: write NAME=VALUE",
    "-s nowhere": "nowhere: there is none of this name; go to the checkout",
    "--cores x": "--cores: should be a whole number from 1, or all, but it is 'x'",
    "-c0": "--cores: should be a whole number from 1, or all, but it is '0'",
    "--arch gfx950 results/models/gfx950": "--arch gfx950 and results/models/gfx950: ",
    "--workflow-profile nowhere": "--workflow-profile: nowhere: there is no such folder",
    "--cofnig arch=gfx950": "--cofnig: neither tileseer run nor snakemake has this flag; do you mean --config?",
}


@pytest.mark.parametrize("call", FAULTS)
def test_a_fault_is_one_line(call, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, text in {"Snakefile": "", "hip.yaml": "", "list.yaml": "- a", "torn.yaml": "arch: [gfx"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "folder").mkdir()
    assert main.main(["run", *call.split()]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: {FAULTS[call]}") or FAULTS[call] in printed.err
    assert printed.err.count("\n") == 1 and printed.out == ""
    assert not list(tmp_path.glob(".snakemake/*"))
