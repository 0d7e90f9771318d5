"""Options and output that the subcommands share: one meaning for each option, one form of ``--json``."""

import argparse
import json
import math
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tileseer.config.operations import DTYPES, VARIANTS
from tileseer.core.errors import UserError
from tileseer.problems import driver_lines
from tileseer.problems.problem import DIMS, Problem

JSON_FORMAT = 2
"""Goes up when a field of ``--json`` changes its meaning or goes away; new fields do not change it."""
EXAMPLE = "N=8,C=64,K=64,Hi=56,Wi=56,Y=3,X=3,pad_h=1,pad_w=1"
_WIDTH = 100


class Parser(argparse.ArgumentParser):
    """Reports a mistake in the arguments in one line, like every other mistake."""

    def error(self, message: str) -> NoReturn:
        """Print ``message`` and end with exit status 2."""
        self.exit(2, f"error: {message}; see {self.prog} --help\n")


def calls(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Parsers of what can be called: a subcommand, or each of its modes."""
    modes = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not modes:
        yield parser
    for action in modes:
        for mode in action.choices.values():
            yield from calls(mode)


def add_tables(parser: argparse._ActionsContainer) -> None:
    """Declare ``--config``, the folder of the tables."""
    parser.add_argument(
        "--config", type=Path, default=Path("config"), metavar="DIR", help="folder of the tables (default: config)"
    )


def add_problem(parser: argparse.ArgumentParser) -> None:
    """Declare ``--variant``, ``--dtype`` and ``--problem``, with an option of its own for every dimension."""
    parser.add_argument("--variant", choices=VARIANTS, help="direction (default: that of the line, or forward)")
    parser.add_argument(
        "--dtype", "--datatype", dest="dtype", choices=DTYPES, help="data type (default: that of the line, or bf16)"
    )
    parser.add_argument(
        "--problem", metavar="N=8,C=64,...",
        help="dimensions in one word, or a line of MIOpenDriver, ckProfiler or cuDNN's letters; options beside it win",
    )  # fmt: skip
    parser.add_argument("--replay", action="store_true", help="also print the problem as a line of each, on stderr")
    for name in DIMS:
        parser.add_argument(f"--{name}", type=int, metavar="INT", help=argparse.SUPPRESS)
    parser.epilog = (
        f"Dimensions, each also an option (--N 8): {', '.join(DIMS)}. C and K are totals over the groups; the rest "
        "default to a 1x1 convolution."
    )


def problem(args: argparse.Namespace) -> Problem:
    """Problem given by the options of ``add_problem``; ``UserError`` if a dimension is missing or wrong.

    Direction and data type, where they were left open, are set in ``args``.
    """
    variant: str | None = None
    dtype: str | None = None
    dims: dict[str, int] = {}
    if args.problem and driver_lines.is_line(args.problem):
        variant, dtype, dims = driver_lines.parse_line(args.problem)
    elif args.problem:
        dims = parse_dims(args.problem)
    dims |= {name: getattr(args, name) for name in DIMS if getattr(args, name) is not None}
    if not dims:
        raise UserError(f"no problem given: use --problem {EXAMPLE} or --N 8 --C 64 ...")
    args.variant, args.dtype = args.variant or variant or "forward", args.dtype or dtype or "bf16"
    requested = Problem.from_dims(args.variant, args.dtype, **dims)
    if args.replay:
        print("\n".join(["replay:", *driver_lines.lines_of(requested).values()]), file=sys.stderr)
    return requested


def parse_dims(text: str) -> dict[str, int]:
    """Read ``N=8,C=64``; a ``UserError`` names the wrong part. Names are checked by ``Problem.from_dims``."""
    dims: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if not (value.isascii() and value.isdigit()):
            raise UserError(f"--problem: {part!r}: write NAME=NUMBER, for example N=8")
        if name in dims:
            raise UserError(f"--problem: {name} is given twice")
        dims[name] = int(value)
    return dims


def positive(text: str) -> int:
    """Read a whole number from 1."""
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)


def print_json(command: str, content: Mapping[str, Any]) -> None:
    """Print the one object of ``--json``: ``command``, ``format`` and the fields of ``content``.

    A number that is not known is null: JSON has no NaN.
    """
    taken = {"command", "format"} & set(content)
    if taken:
        raise ValueError(f"{sorted(taken)} are fields of every object")
    print(json.dumps({"command": command, "format": JSON_FORMAT, **_json_value(content)}, indent=2, allow_nan=False))


def answer(args: argparse.Namespace, content: Mapping[str, Any], lines: Iterable[str], status: int = 0) -> int:
    """Print ``content`` with ``--json``, else ``lines``; return the exit status."""
    if args.json:
        words = [args.command, *(getattr(args, name) for name in ("action", "mode") if hasattr(args, name))]
        print_json(" ".join(words), content)
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines)
    return int(status)


def epilog(note: str | None, examples: Sequence[str]) -> str:
    """Text below the options of a help text: a note, and calls to copy."""
    parts = [textwrap.fill(note, _WIDTH)] if note else []
    return "\n\n".join([*parts, "\n".join(["examples:", *(f"  {line}" for line in examples)])])


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as aligned plain lines, its head first."""
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    aligned = ([text.ljust(width) for text, width in zip(row, widths, strict=True)] for row in [columns, *rows])
    return ["  ".join(row).rstrip() for row in aligned]


def _json_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _json_value(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(part) for part in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
