"""The check of the documentation's language finds what it is for, and nothing in plain sentences."""

import subprocess
import sys
from pathlib import Path

import pytest

import plain_english

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools/plain_english.py"
PLAIN = """# What it costs

The command names each convolution that it leaves out. What does it cost? Never mix simulated and measured rows.

| what | cost |
|---|---|
| what is measured | 3 s |

```sh
what --is this.
```
"""
PLANTED = {
    "What cannot stand in the table, a dynamic shape for example, is told with its reason.": "begin with the subject",
    "So does nobody better, and so does nobody who has not timed the pair.": "say who does what",
    "Of the weight gradient's candidates 120 are left to tell apart.": "begin with the subject",
    "Nor is a kernel measured twice.": "begin with the subject",
    "The new rows are told apart by the command.": "say who prints it",
    "* The commit stays in vain where nothing changed.": "everyday word",
    "| name | Who waits says for whom. |": "begin with the subject",
    "A journal has several columns and 192 pairs an operation.": "write 'per'",
    "The rule lies in another table.": "write 'is'",
    "No judged layer was used in training.": "write 'evaluate'",
    "Mend the lines marked `needed`.": "write 'fix'",
    " ".join(["word"] * 36) + ".": "36 words",
}


def checked(path):
    return subprocess.run([sys.executable, TOOL, path], capture_output=True, text=True, check=False)


def test_plain_sentences_code_headings_and_questions_pass(tmp_path):
    (tmp_path / "page.md").write_text(PLAIN)
    done = checked(tmp_path / "page.md")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("sentence", PLANTED)
def test_a_planted_sentence_is_found_with_its_page(sentence, tmp_path):
    (tmp_path / "page.md").write_text(f"{PLAIN}\n{sentence}\n")
    done = checked(tmp_path / "page.md")
    assert done.returncode == 1
    assert str(tmp_path / "page.md") in done.stdout and PLANTED[sentence] in done.stdout


def test_messages_of_the_code_are_checked_and_its_docstrings_are_not():
    source = """def check(path, count):
    \"\"\"A docstring that lies in a module.\"\"\"
    raise UserError(f"{path}: {count} lines a kernel")
"""
    found = [list(plain_english.private_phrases(message)) for message in plain_english.messages(source)]
    assert [advice for faults in found for _, advice in faults] == ["write 'per'"]
