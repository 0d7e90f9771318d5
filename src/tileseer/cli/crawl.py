"""``tileseer crawl``: find the convolutions of a user's own model."""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tileseer.cli import options
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.core.places import install
from tileseer.facts.operations import DTYPES, VARIANTS
from tileseer.libraries.problem_lists import read_problem_lists
from tileseer.problems import layers
from tileseer.problems.layers import Layer
from tileseer.problems.operation import Operation

EXAMPLES = (
    "tileseer crawl --torch torchvision.models:resnet50 --input 8x3x224x224 --output my_model.csv",
    "tileseer crawl --problems training.log --output my_model.csv",
    "tileseer crawl --onnx my_model.onnx --input 8x3x224x224 --train --output my_model.csv",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--torch", metavar="MODULE:CALLABLE", help="a callable without arguments that returns a model")
    source.add_argument("--onnx", type=Path, metavar="FILE", help="an ONNX model")
    source.add_argument("--problems", type=Path, metavar="FILE", help=options.problem_files())
    meaning = "shape of an input, batch first, such as 8x3x224x224; repeat it for each further input"
    parser.add_argument("--input", action="append", default=[], metavar="[NAME=]SHAPE", help=meaning)
    parser.add_argument("--output", type=options.csv_output, required=True, help="the table to write")
    parser.add_argument("--train", action="store_true", help="the directions of training, not only those of inference")
    parser.add_argument("--network", help="name of the network (default: that of the callable or the file)")
    parser.epilog = f"Needs the packages of an extra: {install('crawl')}."


def run(args: argparse.Namespace) -> int:
    """Crawl, write the table, and list the convolutions left out; the exit status is 1 if there is none."""
    if args.problems:
        if unused := [option for option in ("input", "train") if getattr(args, option)]:
            raise UserError(
                f"--{unused[0]} is for --torch and --onnx; a list of problems has its shapes and directions"
            )
        convolutions, left_out = _listed(args.problems, args.network or args.problems.stem)
        return _write(args, convolutions, left_out)
    # What reads torch and ONNX models is imported where it is used: neither is part of the plain package.
    from tileseer.problems.crawl import user_model

    if args.torch:
        convolutions, left_out = user_model.torch_layers(args.torch, args.input, args.train, args.network)
    else:
        convolutions, left_out = user_model.onnx_layers(args.onnx, args.input, args.train, args.network)
    return _write(args, convolutions, left_out)


def _listed(path: Path, network: str) -> tuple[list[Layer], Counter[str]]:
    """Return the layers of a list of problems, at any layout and data type, and how many lines each reason refused."""
    read = read_problem_lists([path], [Operation(variant, dtype) for variant in VARIANTS for dtype in DTYPES])
    directions: dict[tuple[int, ...], set[str]] = {}
    for problem in read.problems:
        directions.setdefault(problem.dims, set()).add(problem.variant)
    print("".join(f"{note}\n" for note in read.notes), end="", file=sys.stderr)
    found = [
        Layer(network, "", f"conv{number}", dims, directions=tuple(one for one in VARIANTS if one in own))
        for number, (dims, own) in enumerate(directions.items(), start=1)
    ]
    return found, read.refused


def _refuse_other_table(path: Path) -> None:
    """Raise a ``UserError`` for a file with anything but the layers of one network, such as a crawl writes."""
    if not path.exists() or not path.stat().st_size:
        return
    try:
        is_of_one = len({layer.network for layer in layers.read_layers(path)}) == 1
    except UserError:
        is_of_one = False
    if not is_of_one:
        raise UserError(f"--output: {path} is there, and is not the table of one network; name another file")


def _write(args: argparse.Namespace, convolutions: Sequence[Layer], left_out: Mapping[str, int]) -> int:
    """Write the table and tell of it; return the exit status."""
    for reason, count in sorted(left_out.items()):
        print(f"left out: {count} convolutions: {reason}", file=sys.stderr)
    if not convolutions:
        said = "no convolution fits a table of layers" if left_out else "no convolution was run"
        way = "" if left_out else "; name what runs some, such as the backbone"
        print(f"{args.torch or args.onnx or args.problems}: {said}; nothing was written{way}", file=sys.stderr)
        return 1
    _refuse_other_table(args.output)
    write_text(args.output, layers.layers_csv(convolutions))
    counts = {"layers": len(convolutions), "convolutions": sum(layer.occurrences for layer in convolutions)}
    content = {"table": args.output, "network": convolutions[0].network, **counts, "left_out": left_out}
    text = "{table}: {layers} distinct convolutions of {convolutions} that {network} runs".format(**content)
    return options.answer(args, content, [text])
