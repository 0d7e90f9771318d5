"""What messages advise: each command that one names exists with its options, and a nearest word is accepted."""

import argparse
import ast
import contextlib
import re
from pathlib import Path

import pytest

from tileseer.cli import main
from tileseer.cli.run_words import USUAL

ROOT = Path(__file__).parents[2]
CALL = re.compile(r"\btileseer ([a-z]+)((?: [^ ;,)`'\"]+)*)")


def texts(tree):
    """Each text of a module, the values in it left out; those of one f-string are one."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def options_of(parser):
    """All options of a command, those of its modes too."""
    modes = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    own = set(parser._option_string_actions)
    return own.union(*(options_of(mode) for action in modes for mode in action.choices.values()))


def test_every_command_that_a_text_names_exists_with_its_options():
    found = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for text in texts(ast.parse(path.read_text())):
            for command, rest in CALL.findall(text):
                if command in main.COMMANDS or "--" in rest:
                    found.setdefault(command, set()).update(re.findall(r"(?<= )--?[a-z][a-z-]*", rest))
    assert found.keys() <= main.COMMANDS.keys() and len(found) > 9
    parser = main.parser(list(main.COMMANDS))
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for command, options in found.items():
        known = options_of(commands.choices[command]) | (USUAL | {"-n"} if command == "run" else set())
        assert options <= known, command


MISSPELT = [
    "selct models", "codegen --ach gfx950 --list-names", "codegen --arch gfx950 --rule-set tinny --list-names",
    "codegen --arch gfx950 --rule-set tiny --variant forwrd --list-names", "import finddb",
    "export miopn", "select models --problem N=8,C=64,K=64,H=14,Wi=14", "ship models --max-los 1%", "run --core-s 2",
    "select models --problem N=8,C=64,K=64,Hi=14,Wi=14 --layout nchw", "tune models --problems p --device simulate",
]  # fmt: skip


@pytest.mark.parametrize("call", MISSPELT)
def test_what_is_taken_for_meant_is_accepted(call, tmp_path, monkeypatch, capsys):
    (tmp_path / "config").symlink_to(ROOT / "config")
    (tmp_path / "Snakefile").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.execve", lambda *words: None)

    def said(words):
        with contextlib.suppress(SystemExit):
            main.main(words.split())
        return capsys.readouterr().err

    first = said(call)
    (meant,) = re.findall(r"is it (\S+)\?", first)
    wrong = re.findall(r"'([^']+)'", first)[0] if "'" in first else first.split()[1].rstrip(":")
    assert wrong in call and "is it" not in said(call.replace(wrong, meant))
