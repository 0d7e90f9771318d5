"""Files of problems as commands take them: layers, a CSV with a column per dimension, or lines of other programs.

Lines may be in a text with others, such as the log of a program that writes a line for each of its convolutions.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from tileseer.core.csv_files import FIRST_LINE, read_csv
from tileseer.core.errors import UserError, is_it, shown
from tileseer.core.reading import LARGEST_TABLE, opened, require_text
from tileseer.facts.operations import VARIANTS
from tileseer.libraries import program_lines
from tileseer.libraries.program import Line
from tileseer.problems import layers, problem_csv
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DEEP_LAYOUTS, DIMS, LAYOUTS, Problem

MOST_LINES = 100_000
LAYOUT_WORDS = (*LAYOUTS, *DEEP_LAYOUTS.values())


@dataclass
class ProblemList:
    """What was read of some files."""

    problems: dict[Problem, None] = field(default_factory=dict)
    """In their order; one without a layout means every layout."""
    refused: Counter[str] = field(default_factory=Counter)
    """How many lines each reason refused."""
    assumed: Counter[str] = field(default_factory=Counter)
    """How many lines each text of defaults is of."""
    remarks: list[str] = field(default_factory=list)
    """What was assumed of tables."""

    @property
    def notes(self) -> list[str]:
        """What was assumed, in words."""
        return self.remarks + [
            f"assumed where lines do not say it ({count:,}): {text}" for text, count in self.assumed.most_common()
        ]


def read_problems(path: Path, operations: Sequence[str]) -> dict[str, list[Problem]]:
    """Return the distinct problems of a file, by operation, in their order; ``operations`` are those that count.

    ``UserError`` names file, line and value, or says that no problem is left.
    """
    read = read_problem_lists([path], list(map(Operation.parse, operations)))
    notes = [*read.notes, *(f"left out {count:,} lines: {reason}" for reason, count in read.refused.most_common())]
    print("".join(f"{note}\n" for note in notes if read.problems), end="", file=sys.stderr)
    by_operation: dict[str, list[Problem]] = {operation: [] for operation in operations}
    for problem in read.problems:
        by_operation[f"{problem.variant}_{problem.dtype}"].append(problem)
    if not read.problems:
        why = next(iter(read.refused), "give a model of its operations")
        raise UserError(f"{path}: {why}; so it has no problem of {', '.join(operations)}")
    return {operation: own for operation, own in by_operation.items() if own}


def read_problem_lists(paths: Sequence[Path], operations: Sequence[Operation], layout: str = "") -> ProblemList:
    """Return the problems of files; where they leave direction or data type open, those of all ``operations``.

    Columns ``direction`` (or ``variant``) and ``dtype`` of a CSV give the operation of a row. ``layout``: of lines that
    name none. ``UserError``: a file that cannot be read, or a CSV with a mistake, by line and value.
    """
    read = ProblemList()
    for path in paths:
        with opened(path, LARGEST_TABLE) as stream:
            require_text(path, stream.read(8))
            stream.seek(0)
            # A program logs a convolution each time that it runs.
            texts = _whole_lines(line.decode(errors="replace") for line in stream)
            first = next((text for text in texts if text.strip()), "")
            lines = dict.fromkeys(part for text in chain([first], texts) if (part := program_lines.line_in(text)))
        if len(lines) > MOST_LINES:
            raise UserError(f"{path}: has more than {MOST_LINES:,} different lines of other programs; split it")
        if not lines:
            if not first:
                raise UserError(f"{path}: is empty; write problems, such as {program_lines.examples()}")
            if first.lstrip().startswith(("{", "[")):
                raise UserError(f"{path}: is JSON; write a CSV, or lines such as {program_lines.examples()}")
            if not _is_header(first):
                raise UserError(
                    f"{path}: has no line of {program_lines.names_of_programs(' or ')}, and its first line is no "
                    f"header with columns {', '.join(problem_csv.REQUIRED_DIMS)}; lines are such as "
                    f"{program_lines.examples()}{program_lines.ways()}"
                )
            read.problems |= dict.fromkeys(_of_csv(path, operations, read))
        for one in lines:
            try:
                line = program_lines.parse_line(one)
                read.problems |= dict.fromkeys(_of_line(line, operations, layout))
                read.assumed.update([line.assumed] * bool(line.assumed))
            except UserError as error:
                read.refused[str(error).removeprefix("--problem: ")] += 1
    return read


def _whole_lines(lines: Iterator[str]) -> Iterator[str]:
    """Yield lines, those that a backslash continues as one."""
    for line in lines:
        while line.rstrip().endswith("\\") and len(line) < program_lines.LONGEST:
            line = f"{line.rstrip()[:-1]} {next(lines, '')}"
        yield line


def _is_header(text: str) -> bool:
    """Return whether a line names two dimensions, however written and separated: ``_of_csv`` says what is wrong."""
    if text.lstrip().startswith("//"):
        return False
    words = set(re.findall(r"\w+", text.lower()))
    return len(words.intersection(name.lower() for name in problem_csv.REQUIRED_DIMS)) > 1


def _of_csv(path: Path, operations: Sequence[Operation], read: ProblemList) -> Iterator[Problem]:
    table = read_csv(path)
    if {"network", "layer"} <= set(table):
        for layer in layers.read_layers(path):
            yield from (layer.problem_for(one) for one in operations if one.variant in layer.directions)
        return
    rows, remarks = problem_csv.dims_of_rows(path, table)
    read.remarks += remarks
    # A table of problems says `variant`, one of measurements `direction`.
    words = {"direction": "variant" if "variant" in table else "direction", "dtype": "dtype", "layout": "layout"}
    rows = rows.assign(**{name: table[given].str.strip() if given in table else "" for name, given in words.items()})
    for line, *row in rows.drop_duplicates().itertuples():
        dims, (direction, dtype, layout) = dict(zip(DIMS, row, strict=False)), row[len(DIMS) :]
        try:
            if direction not in ("", *VARIANTS):
                way = f"use one of {', '.join(VARIANTS)}{is_it(direction, VARIANTS)}"
                raise UserError(f"{words['direction']} is {shown(direction)}; {way}")
            if layout not in ("", *LAYOUT_WORDS):
                raise UserError(f"layout is {layout!r}; use one of {', '.join(LAYOUT_WORDS)}")
            chosen = [one for one in operations if direction in ("", one.variant) and dtype in ("", one.dtype)]
            if not chosen:
                named = " ".join(filter(None, (direction, dtype)))
                read.refused[f"there is no model of {named}; {_models(operations)}"] += 1
            yield from (Problem.from_dims(one.variant, one.dtype, **dims).with_layout(layout) for one in chosen)
        except UserError as error:
            raise UserError(f"{path}, line {line + FIRST_LINE}: {error}") from error


def _models(operations: Sequence[Operation]) -> str:
    return f"there are models of {', '.join(map(str, operations))}"


def _of_line(line: Line, operations: Sequence[Operation], layout: str) -> list[Problem]:
    """Return the problems of a line, of those ``operations`` that it is for."""
    chosen = [one for one in operations if one.dtype == line.dtype and one.variant in line.directions]
    if not chosen:
        raise UserError(f"there is no model of {' or '.join(line.directions)} in {line.dtype}; {_models(operations)}")
    own = line.layout or layout
    return [Problem.from_dims(one.variant, line.dtype, **line.dims).with_layout(own) for one in chosen]
