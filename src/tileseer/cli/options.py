"""Options and output that the subcommands share: one meaning for each option, one form of ``--json``."""

from __future__ import annotations

import argparse
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pydantic_core

from tileseer.core.errors import UserError, is_it, shown
from tileseer.core.places import find_file
from tileseer.core.reading import no_file
from tileseer.data.provenance import Taken
from tileseer.facts.operations import DTYPES, VARIANTS
from tileseer.libraries import program_lines
from tileseer.problems.problem import DIMS, EXAMPLE, LAYOUTS, Problem

if TYPE_CHECKING:
    from tileseer.serve.selector import Outlook

JSON_FORMAT = 4
"""Goes up when a field of ``--json`` changes its meaning or goes away; new fields do not change it."""
SIZES, DEPTH = ("N", "C", "K", "Hi", "Wi"), ("Di", "Z", "stride_d", "pad_d", "dilation_d")
OTHER_OPTIONS = {"--operation": "; write --variant and --dtype", "--direction": "; is it --variant?"}
"""What is written instead of options that other subcommands or programs have."""
_HELP_COLUMNS = 100
Number = TypeVar("Number", int, float)


class Parser(argparse.ArgumentParser):
    """Takes no abbreviations, and reports a mistake in the arguments in one line, like every other mistake."""

    takes_more = False
    """Whether words that the parser does not know are left to its caller."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **kwargs)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse as the base class does; a word that neither the parser nor, if it may, its caller knows is an error."""
        own, words = self._option_string_actions, list(args or ())
        if not self._subparsers:
            self._refuse_repeated(words)
        if not self.takes_more:
            # Words behind a subcommand are its own.
            mine = takewhile(lambda word: word.startswith("-"), words) if self._subparsers else words
            # Before what is missing: a misspelt option is missing too.
            for option in (word.partition("=")[0] for word in mine if word.startswith("--")):
                if option not in own:
                    self.error(f"unknown argument {shown(option)}{self._way_from(option, words)}")
        found, rest = super().parse_known_args(args, namespace)
        if rest and not self.takes_more:
            if "--problem" in own and "=" in rest[0]:
                is_given = any(word.startswith("--problem") for word in words)
                forgotten = "; join dimensions by commas" if is_given else "; write --problem before it"
            elif "--configfile" in own and ".yaml" in rest[0]:
                forgotten = "; write --configfile before it"
            else:
                forgotten = self._taken()
            self.error(f"unknown argument {shown(rest[0])}{forgotten}")
        return found, rest

    def _refuse_repeated(self, words: Sequence[str]) -> None:
        """End with an error where an option that counts once is given twice."""
        actions = self._option_string_actions
        options = [word.partition("=")[0] for word in words]
        for option in options:
            action = actions.get(option)
            if action and not isinstance(action, argparse._AppendAction) and options.count(option) > 1:
                way = "write it once, with all its values" if action.nargs else "leave one out"
                self.error(f"{option} is given twice; {'join dimensions by commas' if option == '--problem' else way}")

    def _way_from(self, option: str, words: Sequence[str]) -> str:
        """Return what is meant by an option that there is not, or which arguments there are."""
        own = self._option_string_actions
        if near := is_it(option, own, 0.7):
            return near
        if self._subparsers:
            commands = {name for action in self._actions if action.dest == "command" for name in action.choices or ()}
            command = next((word for word in words if word in commands), "")
            return f"; write it behind {command}" if command else self._taken()
        if option == "--arch" and any(action.dest == "models" for action in self._actions):
            return "; the arch is that of the folder: results/models/ARCH"
        if option == "--arch" and "--configfile" in own:
            return "; --configfile names one whose arch it is"
        return OTHER_OPTIONS.get(option) or self._taken()

    def _taken(self) -> str:
        """Return the arguments that the parser takes, in words."""
        words = list[str]()
        for action in self._actions[1:]:
            names = (
                action.choices if isinstance(action, argparse._SubParsersAction) else [action.metavar or action.dest]
            )
            words += action.option_strings[-1:] or map(str, names)
        return f"; there are {', '.join(words)}" if words else ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = list(map(str, action.choices))
            way = "; separate them by blanks" if action.nargs and "," in str(value) else is_it(value, known)
            raise argparse.ArgumentError(action, f"{shown(value)} is none of {', '.join(known)}{way}")

    def error(self, message: str) -> NoReturn:
        """Print ``message`` and end with exit status 2."""
        if message.endswith("expected one argument"):
            message += f"; it is missing, or begins with - and is written {message.split()[1].rstrip(':')}=VALUE"
        self.exit(2, f"error: {message}; see {self.prog} --help\n")


def calls(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of what can be called: a subcommand, or each of its modes."""
    modes = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not modes:
        yield parser
    for action in modes:
        for mode in action.choices.values():
            yield from calls(mode)


INPUTS = ("problems", "kernels", "onnx")
"""Options that name files to read."""


def check_paths(args: argparse.Namespace) -> None:
    """Raise a ``UserError`` for an option of ``INPUTS`` without its file, and for an output that is read as well.

    In a folder that lacks a table of the package, the option gets that of the package.
    """
    for name in INPUTS:
        value = getattr(args, name, None)
        paths = list(map(find_file, _paths(value)))
        for path in paths:
            if not path.exists():
                raise UserError(f"--{name} {path}: {no_file(path)}")
        if paths:
            setattr(args, name, paths if isinstance(value, list) else paths[0])
    output = getattr(args, "output", None)
    if isinstance(output, Path) and output.exists():
        for name, value in vars(args).items():
            if name != "output" and any(path.exists() and output.samefile(path) for path in _paths(value)):
                raise UserError(f"--output {output} is read as {name} and would be lost; give another name")


def _paths(value: object) -> list[Path]:
    """Return the paths that an argument is or lists."""
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, Path)]


def add_tables(parser: argparse._ActionsContainer) -> None:
    """Declare ``--config``, the folder of the tables."""
    parser.add_argument("--config", type=_folder, default=Path("config"), metavar="DIR", help="folder of the tables")


def _folder(text: str) -> Path:
    """Return the folder that an option names; tables of the package would be read in silence where it is none."""
    if not Path(text).is_dir():
        meant = f"; is it --configfile {text}?" if Path(text).is_file() else ""
        setting = (
            "; here it is the folder of the tables, and settings are in a file (--configfile)" if "=" in text else ""
        )
        raise argparse.ArgumentTypeError(f"{text!r} is no folder{meant or setting}")
    return Path(text)


def table_of(args: argparse.Namespace, name: str) -> Path:
    """Return a table of ``--config``; ``UserError`` where that folder lacks it."""
    if not (path := find_file(args.config / name)).exists():
        raise UserError(f"--config {args.config}: has no {name}; leave it out for the tables of the package")
    return path


def folder_output(text: str) -> Path:
    """Return the name of a folder that is to be written; ``UserError`` for a file."""
    if (file := next((each for each in (Path(text), *Path(text).parents) if each.exists()), Path())).is_file():
        raise UserError(f"--output: {file} is a file; name a folder")
    return Path(text)


def csv_output(text: str) -> Path:
    """Return the name of a table that is to be written; ``UserError`` for a folder and for another ending."""
    if Path(text).is_dir():
        raise UserError(f"--output: {text} is a folder; give the name of a file")
    if Path(text).suffix != ".csv":
        raise UserError(f"--output: {text!r}: the table is a CSV; name a file that ends with .csv")
    return Path(text)


def add_models(parser: argparse.ArgumentParser) -> None:
    """Declare the directory of published models."""
    parser.add_argument("models", type=Path, metavar="MODEL_DIR", help="directory with index.json, of one arch")


def add_problem_file(parser: argparse.ArgumentParser) -> None:
    """Declare ``--problems``, a file that ``problem_lists.read_problems`` reads."""
    parser.add_argument("--problems", required=True, type=Path, metavar="FILE", help=problem_files())


def problem_files() -> str:
    """Return what files of problems may have, in words."""
    return (
        f"CSV with a column per dimension, a table of layers, or a text with lines such as {program_lines.examples()}"
    )


def add_problem(parser: argparse.ArgumentParser) -> None:
    """Declare ``--variant``, ``--dtype`` and ``--problem``."""
    parser.add_argument("--variant", choices=VARIANTS, help="direction (default: that of the line, or forward)")
    parser.add_argument("--dtype", choices=DTYPES, help="data type (default: of the line, or bf16)")
    words = f"dimensions, or a line, whose direction and data type other options override: {program_lines.examples()}"
    parser.add_argument("--problem", metavar="N=8,C=64,...", help=words)
    parser.epilog = (
        f"Dimensions: {', '.join(DIMS)}. C and K are totals over the groups; the rest default to a 1x1 convolution."
    )


def add_layout(parser: argparse._ActionsContainer) -> None:
    """Declare ``--layout``."""
    words = [*LAYOUTS, *(layout.replace("HW", "DHW") for layout in LAYOUTS)]
    meaning = "order of the axes of all tensors (default: of the line, or the first that the model knows)"
    parser.add_argument("--layout", choices=words, help=meaning)


def problem(args: argparse.Namespace) -> Problem:
    """Return the problem of the options of ``add_problem`` and ``add_layout``; ``UserError`` if a dimension is wrong.

    Direction and data type, where they were left open, are set in ``args``; so is ``left_out``, the dimensions that
    every convolution has and that are missing. A filter that is left out as a whole is one of 1x1.
    """
    variant: str | None = None
    dtype: str | None = None
    dims: dict[str, int] = {}
    layout = getattr(args, "layout", None) or ""
    if args.problem and program_lines.is_line(args.problem):
        line = program_lines.parse_line(args.problem)
        variant, dtype, dims = line.directions[0], line.dtype, line.dims
        layout = layout or ("layout" in args and line.layout) or ""
        assumed = [line.assumed] if line.assumed else []
        if len(line.directions) > 1 and not args.variant:
            assumed.append(f"{variant} of {', '.join(line.directions)} (--variant)")
        if assumed:
            print(f"assumed, as --problem does not say it: {'; '.join(assumed)}", file=sys.stderr)
    elif args.problem:
        dims = _parse_dims(args.problem)
    else:
        raise UserError(f"no problem given: use --problem {EXAMPLE}")
    needed = SIZES if {"Y", "X"}.isdisjoint(dims) else (*SIZES, "Y", "X")
    args.left_out = [name for name in needed if name not in dims]
    args.variant, args.dtype = args.variant or variant or "forward", args.dtype or dtype or "bf16"
    return Problem.from_dims(args.variant, args.dtype, **dims).with_layout(layout)


def warn_of_left_out(args: argparse.Namespace) -> None:
    """Tell what ``problem`` took as 1."""
    if args.left_out:
        print(f"warning: --problem has no {', '.join(args.left_out)}: taken as 1", file=sys.stderr)


def word_of(problem: Problem) -> str:
    """Return a problem as ``--problem`` takes it; without the dimensions of depth where it has none."""
    names = DIMS if problem.ndim == 3 else [name for name in DIMS if name not in DEPTH]
    return ",".join(f"{name}={getattr(problem, name)}" for name in names)


def _parse_dims(text: str) -> dict[str, int]:
    """Read ``N=8,C=64``; a ``UserError`` names the wrong part. Names are checked by ``Problem.from_dims``."""
    dims: dict[str, int] = {}
    if "=" not in text and Path(text).is_file():
        raise UserError(
            f"--problem {text}: is a file; write one problem here, such as {EXAMPLE}, or score or tune files"
        )
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name in ("layout", "variant", "dtype"):
            raise UserError(f"--problem: {shown(part)}: write --{name} {value or '...'} beside it")
        # Which numbers are right, Problem says.
        if not re.fullmatch("-?[0-9]{1,40}", value):
            joined = "; join dimensions by commas" if part.count("=") > 1 else ""
            raise UserError(f"--problem: {shown(part)}: write NAME=NUMBER, a whole number such as N=8{joined}")
        if name in dims:
            raise UserError(f"--problem: {name} is given twice")
        dims[name] = int(value)
    return dims


def number(read: Callable[[str], Number], fits: Callable[[Number], bool], form: str) -> Callable[[str], Number]:
    """Return the type of an option: what ``read`` makes of its text has to fit, and is ``form`` in words."""

    def parse(text: str) -> Number:
        with suppress(ValueError, KeyError):
            if fits(value := read(text)):
                return value
        raise argparse.ArgumentTypeError(f"{text!r} is no {form}")

    return parse


UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def size(text: str) -> int:
    """Return the bytes of a size with a unit or without; of a few bytes, nobody means them."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?(KiB|MiB|GiB|B)?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write bytes, or a number with KiB, MiB or GiB")
    number_of_bytes = round(float(match[1]) * UNITS.get(match[2], 1))
    if match[2] is None and 0 < number_of_bytes < UNITS["KiB"]:
        raise argparse.ArgumentTypeError(f"{text} bytes are too few for anything; write {text}GiB or {text}MiB")
    return number_of_bytes


positive = number(int, lambda value: value >= 1, "whole number from 1")


def outlook_lines(outlook: Outlook, library: str | None) -> Iterator[str]:
    """Yield how a problem stands to what was measured and what is expected of the pick, in lines.

    ``library`` offers the candidates and has a choice of its own; None: no library does.
    """
    meaning = {
        "inside": "layers like it were measured, and picks for them lose little",
        "edge": "few layers like it were measured, or picks for them lose some time",
        "outside": "a guess: next to nothing like it was measured, or picks for such layers lose much time",
    }
    yield f"evidence: {outlook.evidence} ({meaning[outlook.evidence]})"
    if math.isnan(outlook.loss):
        return
    own = "the library's own choice" if library else "the first of a fixed order"
    kind = outlook.kind.replace("/", ", ") or "all kinds"
    yield (
        f"expected: {outlook.loss:.2f} of the time of the fastest, {own} {outlook.own_loss:.2f}, by layers left out of "
        f"{outlook.cases:,} that were measured ({kind})"
    )
    if not outlook.gains:
        yield f"advice: nothing says that {own} is slower here: time candidates (tileseer tune) before you replace it"


def taken_lines(taken: Taken | None) -> list[str]:
    """Return with what the times of a model were taken, in a line; none where nothing of it is known."""
    return [f"times taken with: {taken}"] if taken else []


def answer(args: argparse.Namespace, content: Mapping[str, Any], lines: Iterable[str], status: int = 0) -> int:
    """Print ``lines``, or with ``--json`` one object: ``command``, ``format`` and ``content``; return the exit status.

    A number that is not known is null: JSON has no NaN.
    """
    if args.json:
        command = " ".join([args.command, *([args.action] if hasattr(args, "action") else [])])
        printed = {"command": command, "format": JSON_FORMAT, **content}
        text = pydantic_core.to_json(printed, indent=2, inf_nan_mode="null", fallback=lambda scalar: scalar.item())
        print(text.decode())
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines)
    return int(status)


def epilog(note: str | None, examples: Sequence[str]) -> str:
    """Return the text below the options of a help text: a note, and calls to copy."""
    parts = [textwrap.fill(note, _HELP_COLUMNS)] if note else []
    return "\n\n".join([*parts, "\n".join(["examples:", *(f"  {line}" for line in examples)])])


def table_lines(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the rows of texts by column as aligned plain lines, the names of the columns first."""
    names = list(rows[0]) if rows else []
    texts = [names, *([row[name] for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in texts]
