"""``tileseer ship``: the smallest set of kernels that loses little, with its price and its sources."""

import argparse
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tileseer.cli import options
from tileseer.config.benchmark import SECONDS
from tileseer.core.errors import UserError
from tileseer.core.places import find
from tileseer.dataset.dataset import Dataset
from tileseer.learn import model_files
from tileseer.learn.model import Model
from tileseer.serve import shipped_folder, shipping

EXAMPLES = (
    "tileseer ship results/models/gfx950 --max-loss 1%",
    "tileseer ship results/models/gfx950 --operation forward_bf16 --max-kernels 40 --output kernels-gfx950",
    "tileseer ship results/models/sm_90 --networks tv_resnet50,tv_convnext_tiny",
)
UNITS_OF_BYTES = {"k": 1e3, "M": 1e6, "G": 1e9}
_COLUMNS = ("kernels", "loss", "unseen_loss", "unseen_p10_loss", "unseen_well_covered")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("models", type=Path, metavar="MODEL_DIR", help="directory with index.json, below results")
    parser.add_argument("--operation", nargs="+", metavar="OP", help="only these (default: all of the directory)")
    limits = parser.add_argument_group("limits, each an operation")
    limits.add_argument(
        "--max-loss", type=_share, default=0.01, metavar="SHARE", help="of the mean efficiency (default: 1%%)"
    )
    limits.add_argument("--max-kernels", type=options.positive, metavar="N", help="how many kernels at most")
    limits.add_argument(
        "--max-bytes",
        type=partial(_with_unit, UNITS_OF_BYTES, "20M"),
        metavar="SIZE",
        help="machine code, for example 20M",
    )
    limits.add_argument(
        "--max-compile",
        type=partial(_with_unit, SECONDS, "2h"),
        metavar="TIME",
        help="CPU time to compile, for example 2h",
    )
    weights = parser.add_argument_group("what counts (default: all training problems alike)")
    weights.add_argument("--networks", metavar="LIST", help="the calls of these networks, by the time they take")
    weights.add_argument(
        "--layers", type=Path, metavar="CSV",
        help="table of layers that --networks names (default: config/problems/layers.csv)",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, metavar="DIR", help="write sources, build list and selectors of the set")
    parser.add_argument(
        "--ck-api", default="", metavar="LEVEL", help="level of the CK Tile API of the sources (default: the newest)"
    )
    parser.add_argument("--threads", type=options.positive, default=1, help="the result does not depend on it")
    parser.epilog = "Results of the workflow have to lie beside MODEL_DIR: results/datasets/ARCH/OP.parquet."


def run(args: argparse.Namespace) -> int:
    """Choose, print, and write what is asked for."""
    listed = model_files.read_index(args.models)
    operations = args.operation or list(listed.operations)
    unknown = next((name for name in operations if name not in listed.operations), None)
    if unknown:
        raise UserError(f"--operation: {unknown} is none of {', '.join(listed.operations)}")
    if args.layers and not args.networks:
        raise UserError(f"--layers {args.layers}: say with --networks which of its networks count")
    if args.output:
        shipped_folder.refuse_used(args.output)
    limits = shipping.SetLimits(args.max_loss, args.max_kernels, args.max_bytes, args.max_compile)
    pools = {operation: _pool(args, listed.arch, operation) for operation in operations}
    content = {}
    lines = [f"{listed.arch}, {listed.device_kind} times"]
    for operation, pool in pools.items():
        chosen = pool.smallest(limits)
        found: dict[str, Any] = {
            "set": pool.figures(chosen),
            "pool": len(pool.names),
            "kernels": [pool.names[column] for column in chosen],
            "curve": pool.curve(len(chosen)),
        }
        if args.output:
            whole = Model.read(args.models / listed.operations[operation].folder)
            own = whole.with_pool(whole.pool["kernel"].isin(found["kernels"]).to_numpy())
            found["model"] = shipping.losses(pool, {"of the pool": whole, "of the set": own}, args.threads)
            shipped_folder.write_selector(args.output / operation, pool.measurements, own, args.threads)
        content[operation] = found
        lines += _lines(operation, found)
    if args.output:
        shipped_folder.write_sources(
            args.output, listed.arch, [name for f in content.values() for name in f["kernels"]], args.ck_api
        )
        lines.append(f"{args.output}: sources, build list and selectors")
    about = {"arch": listed.arch, "device_kind": listed.device_kind, "operations": content}
    if args.output:
        shipped_folder.write_figures(args.output, about)
    return options.answer(args, about, lines)


def _pool(args: argparse.Namespace, arch: str, operation: str) -> shipping.KernelPool:
    """The kernels of one operation, from the results that the models lie in."""
    results = args.models.resolve().parents[1]
    dataset = results / "datasets" / arch / f"{operation}.parquet"
    if not dataset.is_file():
        raise UserError(f"{dataset}: there is no such file; MODEL_DIR has to lie in the results that it was made in")
    measurements, weight = Dataset.read(dataset), None
    if args.networks:
        layers = find(args.layers or Path("config/problems/layers.csv"))
        weight = shipping.network_weights(measurements, layers, args.networks.split(","))
    return shipping.KernelPool.of(measurements, results, weight)


def _lines(operation: str, found: Mapping[str, Any]) -> list[str]:
    """The set, and the sets of other sizes, as text."""
    cells = [[_cell(figures.get(column)) for column in _COLUMNS] for figures in found["curve"]]
    lines = [shipping.set_line(operation, found["set"], found["pool"]), *options.table_lines(_COLUMNS, cells)]
    if found.get("model"):
        losses = ", ".join(f"{name} {figures['loss']:.2f} %" for name, figures in found["model"].items())
        lines.append(f"loss of the model's picks on unseen problems: {losses}")
    return lines


def _cell(value: float | None) -> str:
    return "" if value is None else str(value) if isinstance(value, int) else f"{value:.2f}"


def _share(text: str) -> float:
    """Read ``1%`` or ``0.01``."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share between 0 and 1, such as 1% or 0.01")
    return value


def _with_unit(units: Mapping[str, float], example: str, text: str) -> float:
    try:
        value = float(text[:-1]) * units[text[-1:]]
    except (KeyError, ValueError):
        value = -1.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: write a number and one of {', '.join(units)}, such as {example}")
    return value
