"""Files of problems as commands take them: a CSV with a column per dimension, or lines of MIOpenDriver and ckProfiler.

Such lines may be in a text with others, such as a log of MIOpen.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tileseer.core.errors import UserError
from tileseer.problems import driver_lines, problem_csv
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DIMS, Problem

LINE = re.compile(r"\S*(?:MIOpenDriver|ckProfiler)\s.*")


def read_problems(path: Path, operations: Sequence[str]) -> dict[str, list[Problem]]:
    """The distinct problems of a file, by operation, in their order; ``operations`` are those that count.

    Columns ``direction`` (or ``variant``) and ``dtype`` say whose a row is; without them it is of all ``operations``.
    ``UserError`` names file, line and value, or says that no problem is left.
    """
    try:
        lines = [match[0] for match in LINE.finditer(path.read_text(encoding="utf-8", errors="replace"))]
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    problems = _of_lines(path, lines) if lines else _of_table(path, operations)
    by_operation: dict[str, dict[Problem, None]] = {operation: {} for operation in operations}
    for problem in problems:
        operation = f"{problem.variant}_{problem.dtype}"
        if operation in by_operation:
            by_operation[operation][problem] = None
    if not any(by_operation.values()):
        raise UserError(f"{path}: there is no problem of {', '.join(operations)}; give a model of its operations")
    return {operation: list(own) for operation, own in by_operation.items() if own}


def _of_lines(path: Path, lines: Sequence[str]) -> Iterator[Problem]:
    for line in lines:
        try:
            variant, dtype, dims = driver_lines.parse_line(line)
            for one in [variant] if variant else ["forward", "bwd_data", "bwd_weight"]:
                yield Problem.from_dims(one, dtype, **dims).with_layout(driver_lines.layout_of(line))
        except UserError as error:
            raise UserError(f"{path}: {line[:80]!r}: {str(error).removeprefix('--problem: ')}") from error


def _of_table(path: Path, operations: Sequence[str]) -> Iterator[Problem]:
    table = problem_csv.read_csv(path)
    dims, _ = problem_csv.dims_of_rows(path, table)
    problem_csv.check_problems(path, dims, "forward", "bf16")
    # A table of problems says `variant`, one of measurements `direction`.
    names = ["variant" if "variant" in table else "direction", "dtype"]
    own = [table[name].str.strip().to_numpy() if name in table else np.full(len(table), "") for name in names]
    for variant, dtype, row in zip(*own, dims[list(DIMS)].to_numpy().tolist(), strict=True):
        for operation in map(Operation.parse, operations):
            if variant in ("", operation.variant) and dtype in ("", operation.dtype):
                yield Problem.from_dims(operation.variant, operation.dtype, **dict(zip(DIMS, row, strict=True)))
