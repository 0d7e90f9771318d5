"""What holds for every subcommand: help with examples that parse, ``--json`` of one form, options of one name."""

import json
import re
import shlex
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

import tileseer
from tileseer.cli import main, options

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/internals/command-line.md").read_text()
MEANINGS = {
    "--dtype": "data type", "--variant": "direction", "--config": "folder of the tables", "--json": "one JSON object",
    "--problem": "dimensions",
}  # fmt: skip
"""What an option that several subcommands have is said to be, wherever it is."""


PARSER = main.parser(main.COMMANDS)
LEAVES = [(words, parser) for parser in options.calls(PARSER) if (words := tuple(parser.prog.split()[1:])) != ("run",)]
"""All but `run`, which hands its words to Snakemake."""


@pytest.mark.parametrize(("words", "parser"), LEAVES, ids=[" ".join(words) for words, _ in LEAVES])
def test_every_call_takes_json_and_says_what_options_mean(words, parser):
    helps = {option: action.help for action in parser._actions for option in action.option_strings}
    assert "--json" in helps
    for option, meaning in MEANINGS.items():
        if helps.get(option):
            assert meaning in helps[option], option
    for option in helps:
        assert re.fullmatch(r"-h|--[a-z]+(-[a-z]+)*", option), option


@pytest.mark.parametrize("name", sorted(main.COMMANDS))
def test_the_examples_of_a_help_text_are_calls(name, monkeypatch):
    examples = main.module(name).EXAMPLES
    assert examples
    for example in examples:
        words = shlex.split(example.replace("\\\n", " ").partition(" > ")[0])
        assert words[:2] == ["tileseer", name]
        args, more = PARSER.parse_known_args(words[1:])
        assert args.command == name and (not more or main.module(name).TAKES_MORE)


def test_help_ends_with_the_examples(capsys):
    with pytest.raises(SystemExit):
        main.main(["verify", "--help"])
    assert "\nexamples:\n  tileseer verify " in capsys.readouterr().out


def test_numbers_that_are_not_known_are_null(capsys):
    args = Namespace(json=True, command="x")
    content = {"a": float("nan"), "b": [float("inf"), np.float32(1)], "c": Path("d"), "e": (np.int64(2), np.True_)}
    assert options.answer(args, content, [], status=1) == 1
    assert json.loads(capsys.readouterr().out) == {
        "command": "x", "format": options.JSON_FORMAT, "a": None, "b": [None, 1], "c": "d", "e": [2, True]
    }  # fmt: skip


def documented():
    """Return the fields of each call that docs/internals/command-line.md lists."""
    rows = re.findall(r"^\| `([\w -]+)` \| (.*) \|$", PAGE.split("\n## JSON\n")[1], re.MULTILINE)
    return {call: set(re.findall(r"`(\w+)`", fields)) for call, fields in rows}


def test_the_page_has_the_json_of_every_call():
    assert set(documented()) == {" ".join(words) for words, _ in LEAVES}


CHEAP = {
    "doctor": "doctor",
    "verify": "verify config/recorded/sm_90",
}


@pytest.mark.parametrize("call", sorted(CHEAP))
def test_json_has_the_fields_of_the_page(call, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    main.main([*shlex.split(CHEAP[call]), "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["command"] == call and printed["format"] == options.JSON_FORMAT
    assert set(printed) - {"command", "format"} == documented()[call]


@pytest.mark.parametrize(
    ("action", "fields"),
    [("--list-names", {"names"}), ("--list-configs", {"configs"}), ("--output {tmp}", {"archs"})],
)
def test_codegen_has_json_for_each_of_its_answers(action, fields, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    request = f"codegen --arch gfx950 --rule-set tiny --variant bwd_weight --ndim 2 --dtype bf16 {action} --json"
    assert main.main(request.format(tmp=tmp_path).split()) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed) - {"command", "format"} == fields <= documented()["codegen"]
    first, *_ = printed[fields.pop()]
    assert "grouped_conv_bwd_weight_bf16" in json.dumps(first) or first["kernels"] == 9


def test_without_words_it_prints_its_help(capsys):
    assert main.main([]) == 0
    assert "COMMAND" in capsys.readouterr().out


MISTAKES = (
    ("selct", "is it select?"),
    ("export miopn", "; see tileseer export --help"),
    (
        "provenance a --histry",
        "unknown argument '--histry'; there are MODEL_DIR, --json; see tileseer provenance --help",
    ),
    ("ship m --outptu=x", "unknown argument '--outptu'; is it --output?; see tileseer ship --help"),
    ("select m other", "unknown argument 'other'; there are MODEL_DIR, --variant, --dtype, --problem, "),
    (
        "export miopen m --usr x --problems p",
        "unknown argument '--usr'; is it --user?; see tileseer export miopen --help",
    ),
    ("select", "the following arguments are required: MODEL_DIR; see tileseer select --help"),
    ("select nowhere --problem N=8", "nowhere: has no models (no index.json); give the path of a folder that is there"),
    ("select a.txt --problem N=8", "a.txt: has no models (no index.json)"),
    ("select nowhere --top 0", "argument --top: '0' is no whole number from 1"),
    ("provenance a.txt", "a.txt: has no models (no index.json)"),
    ("score m --problems a.txt --kernels a.txt --output config", "--output: config is a folder"),
    (
        "score m --problems a.tx --kernels a.txt --output s.csv",
        "--problems a.tx: there is no such file; is it a.txt?",
    ),
    (
        "score m --problems N=8 --kernels a.txt --output s.csv",
        "--problems N=8: there is no such file; give the path of a file",
    ),
    ("score m --problems a.txt --kernels a.txt --output a.txt", "--output: 'a.txt': the table is a CSV"),
    ("score m --problems b.csv --kernels a.txt --output b.csv", "--output b.csv is read as problems and would be lost"),
    ("ship m --max-loss -1%", "it is missing, or begins with - and is written --max-loss=VALUE"),
    ("select nowhere --problem N=8,pad_h=-1", "pad_h is -1; it must be an int from 0 to 2147483647"),
    ("select nowhere --problem N=8,layout=NHWC", "'layout=NHWC': write --layout NHWC beside it"),
    ("select nowhere --problem b.csv", "--problem b.csv: is a file; write one problem here"),
    ("verify config --problem N=8", "--problem is for libraries of kernels (.so, .hsaco); config is none"),
    ("verify config --quick", "--quick is for kernels that --emulate executes"),
    ("select nowhere --top many", "argument --top: 'many' is no whole number from 1"),
    ("select nowhere --problem N=8,Q=3", "unknown field 'Q'"),
    ("verify", "the following arguments are required: PATH; see tileseer verify --help"),
    ("verify nowhere", "nowhere: there is no such file or folder"),
    ("codegen --arch gfx95 --output out", "arch_specs.json: unknown arch 'gfx95'; known: gfx1100,"),
)


@pytest.mark.parametrize(("call", "message"), MISTAKES, ids=[call for call, _ in MISTAKES])
def test_a_mistake_is_one_line(call, message, tmp_path, capsys, monkeypatch):
    (tmp_path / "config").symlink_to(ROOT / "config")
    for name in ("a.txt", "b.csv"):
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    try:
        status = main.main(call.split())
    except SystemExit as end:
        status = end.code
    printed = capsys.readouterr()
    assert status == 2 and printed.out == ""
    assert printed.err.startswith("error: ") and printed.err.count("\n") == 1
    assert message in printed.err


def test_python_runs_the_package_and_finds_the_switch_in_it():
    call = [sys.executable, "-m", "tileseer", "select", "models", "N=8,C=64"]
    said = subprocess.run(call, capture_output=True, text=True, check=False)
    assert said.returncode == 2 and "'N=8,C=64'; write --problem before it" in said.stderr
    for call in ("tileseer.enable()", "from tileseer import enable"):
        with pytest.raises(ImportError, match=r"enable is in tileseer.torch; write: from"):
            exec(call, {"tileseer": tileseer})
    with pytest.raises(ImportError, match=r"write: from tileseer.serve.selector import Selector"):
        exec("from tileseer.serve import Selector")
    assert not hasattr(tileseer, "nothing")


def test_a_misspelt_option_before_the_subcommand_is_named(capsys):
    with pytest.raises(SystemExit):
        main.main(["--verison", "select"])
    assert "unknown argument '--verison'; is it --version?" in capsys.readouterr().err
