"""What a message advises is done in the state in which it was given: the call with the advised word succeeds."""

import re

import pytest
from published_models import WORD

from tileseer.cli import main

MODELS = "results/models/gfx950"
SELECT = f"select {MODELS} --problem {WORD}"
WRONG = {
    f"select gfx950 --problem {WORD}": ("gfx950", r"give (\S+)\n"),
    f"select results/models --problem {WORD}": ("results/models", r"give one of its folders: (\S+)"),
    f"select results/models/gfx951 --problem {WORD}": ("results/models/gfx951", r"is it (\S+)\?"),
    f"select {MODELS} --problem {WORD.replace('pad_h', 'padh')}": ("padh", r"is it (\S+)\?"),
    f"{SELECT} --layout NCHW": ("NCHW", r"knows (\w+)"),
    f"{SELECT} --dtype fp16": ("fp16", r"it has forward_(\w+)"),
    f"{SELECT} --variant bwd_data": ("bwd_data", r"it has (\w+)_bf16"),
    f"select {MODELS} --problm {WORD}": ("--problm", r"is it (--\w+)"),
    f"select {MODELS} --problem {WORD} --tob 3": ("--tob", r"is it (--\w+)"),
    f"slect {MODELS} --problem {WORD}": ("slect", r"is it (\w+)\?"),
    "verify gfx950": ("gfx950", r"name (\S+)\n"),
    f"explain {MODELS}/index.json --problem {WORD}": (f"{MODELS}/index.json", r"give (?:one of |that: )?(\S+)\n"),
    "codegen --arch mi355x --rule-set tiny --list-names": ("mi355x", r"do you mean (\w+)\?"),
    "codegen --arch gfx950 --rule-set tinny --list-names": ("tinny", r"is it (\w+)\?"),
    "crawl --problems lines.txt --output out.parquet": ("parquet", r"ends with \.(csv)"),
}  # fmt: skip


@pytest.mark.parametrize("call", WRONG)
def test_the_call_with_the_advised_word_succeeds(call, models, tmp_path, monkeypatch, capsys):
    wrong, pattern = WRONG[call]
    (tmp_path / "results/models").mkdir(parents=True)
    (tmp_path / MODELS).symlink_to(models)
    (tmp_path / "lines.txt").write_text("MIOpenDriver convbfp16 -n 8 -c 64 -H 14 -W 14 -k 64 -y 1 -x 1 -F 1\n")
    monkeypatch.chdir(tmp_path)

    def ended(words):
        try:
            return main.main(words.split())
        except SystemExit as end:
            return end.code

    assert ended(call) == 2
    found = re.search(pattern, capsys.readouterr().err)
    assert found, call
    assert ended(call.replace(wrong, found[1], 1)) == 0, capsys.readouterr().err
