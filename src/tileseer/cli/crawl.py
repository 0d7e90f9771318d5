"""``tileseer crawl``: find the convolutions of a user's own model."""

import argparse
import sys
from pathlib import Path

from tileseer.cli import options
from tileseer.core.atomic import write_text
from tileseer.core.places import install
from tileseer.problems import layers

EXAMPLES = (
    "tileseer crawl --torch torchvision.models:resnet50 --input 8x3x224x224 --output my_model.csv",
    "tileseer crawl --onnx my_model.onnx --input 8x3x224x224 --train --output my_model.csv",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--torch", metavar="MODULE:CALLABLE", help="a callable without arguments that returns a model")
    source.add_argument("--onnx", type=Path, metavar="FILE", help="an ONNX model")
    meaning = "shape of an input, batch first, such as 8x3x224x224; repeat it for each further input"
    parser.add_argument("--input", action="append", default=[], metavar="[NAME=]SHAPE", help=meaning)
    parser.add_argument("--output", type=Path, required=True, help="the table to write")
    parser.add_argument("--train", action="store_true", help="the directions of training, not only those of inference")
    parser.add_argument("--network", help="name of the network (default: that of the callable or the file)")
    parser.epilog = f"Needs the packages of an extra: {install('crawl')}."


def run(args: argparse.Namespace) -> int:
    """Crawl, write the table, and list the convolutions left out; the exit status is 1 if there is none."""
    # What reads torch and ONNX models is imported where it is used: neither is part of the plain package.
    from tileseer.problems.crawl import user_model

    if args.torch:
        convolutions, left_out = user_model.torch_layers(args.torch, args.input, args.train, args.network)
    else:
        convolutions, left_out = user_model.onnx_layers(args.onnx, args.input, args.train, args.network)
    for reason, count in sorted(left_out.items()):
        print(f"left out: {count} convolutions: {reason}", file=sys.stderr)
    if not convolutions:
        print("no convolution fits a table of layers; nothing was written", file=sys.stderr)
        return 1
    write_text(args.output, layers.layers_csv(convolutions))
    counts = {"layers": len(convolutions), "convolutions": sum(layer.occurrences for layer in convolutions)}
    content = {"table": args.output, "network": convolutions[0].network, **counts, "left_out": left_out}
    text = "{table}: {layers} distinct convolutions of {convolutions} that {network} runs".format(**content)
    return options.answer(args, content, [text])
