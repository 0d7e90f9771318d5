"""The examples at the end of the help texts, for the tests that run them."""

import shlex

from tileseer.cli import main

LINES = sorted(example.replace("\\\n", " ") for name in main.COMMANDS for example in main.module(name).EXAMPLES)


def words(beginning: str) -> list[str]:
    """Words after ``tileseer`` of the example that is, or alone begins with, ``beginning``."""
    (line,) = [line for line in LINES if line == beginning] or [line for line in LINES if line.startswith(beginning)]
    return shlex.split(line)[1:]
