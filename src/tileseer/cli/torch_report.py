"""``tileseer torch-report``: predict what a model's cuDNN plans gain for a PyTorch network, without a GPU."""

import argparse
from pathlib import Path

from tileseer.cli import options
from tileseer.core.errors import UserError
from tileseer.core.places import install

EXAMPLES = ("tileseer torch-report network.py --model results/models/sm_90_cudnn",)

ROW_FORMAT = "{:<40} {:<10} {:>4}  {:<14}  {}"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    meaning = "Python file that defines model, a module, and inputs, a tensor or a tuple of tensors"
    parser.add_argument("network", type=Path, metavar="NETWORK.PY", help=meaning)
    folder = Path("results/models/sm_90_cudnn")
    parser.add_argument("--model", type=Path, default=folder, metavar="DIR", help=f"cuDNN models (default: {folder})")
    meaning = "data type of the convolutions (default: bf16)"
    parser.add_argument("--dtype", choices=["bf16", "fp16"], default="bf16", help=meaning)
    parser.add_argument("--inference", action="store_true", help="a forward pass, without the gradients of training")
    parser.epilog = f"Needs the packages of an extra, and cuDNN: {install('torch')}. See docs/nvidia.md."


def run(args: argparse.Namespace) -> int:
    """Print a line a layer, the most time saved first, and the verdict."""
    try:
        from tileseer.torch import report as predictions
    except ImportError as error:
        raise UserError(f"torch-report needs torch ({error}); install it with: {install('torch')}") from error
    report = predictions.report(args.network, args.model, args.dtype, trained=not args.inference)
    default, benchmark = (report.gain(mode) for mode in (predictions.DEFAULT, predictions.BENCHMARK))
    rows = sorted(report.layers, key=lambda one: -report.saved_milliseconds(one, predictions.DEFAULT))
    lines = [ROW_FORMAT.format("layer", "direction", "uses", "predicted gain", "plan")]
    lines += [
        ROW_FORMAT.format(
            row.layer[-40:], row.problem.variant, row.occurrences, f"{row.gain:.2f}", row.pick or "PyTorch's own"
        )
        for row in rows
    ]
    lines += [f"PyTorch's own: {count} calls: {reason}" for reason, count in sorted(report.left_out.items())]
    lines.append(
        f"gains are over cuDNN's first plan; plans listed by {report.version}, the model knows {report.known:.0%}"
    )
    worth = default >= predictions.WORTH
    step = "inference" if args.inference else "a training step"
    lines.append(
        f"{'worth it' if worth else 'not worth it'} (from {predictions.WORTH}): {step} in {args.dtype}, channels last, "
        f"is predicted {default:.2f} times as fast as PyTorch's default, {benchmark:.2f} times as its benchmark mode"
    )
    layers = [
        {
            "layer": row.layer, "direction": row.problem.variant, "problem": row.problem.dims, "uses": row.occurrences,
            "predicted_gain": round(row.gain, 4), "plan": row.pick,
        }
        for row in rows
    ]  # fmt: skip
    content = {
        "dtype": args.dtype, "layout": "channels last", "cudnn": report.version, "known_plans": round(report.known, 4),
        "predicted_gain": {"over_default": round(default, 4), "over_benchmark_mode": round(benchmark, 4)},
        "worth_it": worth, "worth_it_from": predictions.WORTH, "layers": layers, "left_out": report.left_out,
    }  # fmt: skip
    return options.answer(args, content, lines)
