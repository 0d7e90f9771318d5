"""``tileseer ship``: the smallest set of kernels that loses little, with its size, as a CMake project."""

import argparse
import math
import shlex
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tileseer.cli import options
from tileseer.core.atomic import building, write_text
from tileseer.core.documents import json_text
from tileseer.core.errors import UserError, is_it, shown
from tileseer.core.places import find_file
from tileseer.core.seal import file_digest
from tileseer.data.dataset import Dataset
from tileseer.facts.hardware import target
from tileseer.learn import model_files
from tileseer.learn.model import Model
from tileseer.learn.model_schema import percent
from tileseer.libraries.emitter import Emitter
from tileseer.libraries.registry import library_of_arch, parse_kernels
from tileseer.serve import kernel_set, shipped_project, shipping
from tileseer.serve.provenance import read_provenance

EXAMPLES = (
    "tileseer ship results/models/gfx950 --max-loss 1%",
    "tileseer ship results/models/gfx950 --operation forward_bf16 --max-kernels 40 --output kernels-gfx950",
    "tileseer ship results/models/sm_90 --networks tv_resnet50,tv_convnext_tiny",
)
SHOWN_COLUMNS = ("kernels", "loss", "unseen_loss", "unseen_p10_loss", "unseen_well_covered")
BUILD_COMMAND = "cmake -S {folder} -B build && cmake --build build --parallel && build/main"
UNITS_OF_BYTES = {"k": 1e3, "M": 1e6, "G": 1e9}
_share = options.number(
    lambda text: float(text.removesuffix("%")) / (100 if text.endswith("%") else 1),
    lambda value: 0 < value <= 0.5,
    "loss between 0 and 50%, such as 1% or 0.01, which keeps 99 % of the speed",
)
_size = options.number(
    lambda text: float(text[:-1]) * UNITS_OF_BYTES[text[-1:]],
    lambda value: 0 < value < math.inf,
    f"number with one of {', '.join(UNITS_OF_BYTES)} behind it, such as 20M",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.add_models(parser)
    parser.add_argument("--operation", nargs="+", metavar="OP", help="only these (default: all of the directory)")
    limits = parser.add_argument_group("limits, of all these operations together")
    meaning = "of the mean efficiency of each operation (default: 1%%)"
    limits.add_argument("--max-loss", type=_share, default=kernel_set.LOSS, metavar="SHARE", help=meaning)
    limits.add_argument("--max-kernels", type=options.positive, metavar="N", help="how many kernels at most")
    limits.add_argument("--max-bytes", type=_size, metavar="SIZE", help="machine code, for example 20M")
    weights = parser.add_argument_group("what counts (default: all training problems alike)")
    weights.add_argument("--networks", metavar="LIST", help="the calls of these networks, by the time they take")
    meaning = "table of layers that --networks names (default: config/problems/layers.csv)"
    weights.add_argument("--layers", type=Path, metavar="CSV", help=meaning)
    parser.add_argument(
        "--output", type=options.folder_output, metavar="DIR", help="write a CMake project with the kernels of the set"
    )
    meaning = "level of the CK Tile API of the sources (default: the newest)"
    parser.add_argument("--ck-api", default="", metavar="LEVEL", help=meaning)
    parser.add_argument("--threads", type=options.positive, default=1, help="the result does not depend on it")
    parser.epilog = "The results of the workflow must be beside MODEL_DIR: results/datasets/ARCH/OP, or the recording."


def run(args: argparse.Namespace) -> int:
    """Choose, print, and write what is asked for."""
    listed = model_files.read_index(args.models)
    given = listed.operations if args.operation is None else args.operation
    operations = " ".join(given).replace(",", " ").split() or [""]
    unknown = next((name for name in operations if name not in listed.operations), None)
    if unknown is not None:
        known, near = ", ".join(listed.operations), is_it(unknown, listed.operations)
        raise UserError(f"--operation: {shown(unknown)} is none of {known}{near}")
    if args.networks == "":
        raise UserError("--networks: names none; write some with commas, or leave it out")
    if args.layers and not args.networks:
        raise UserError(f"--layers {args.layers}: name with --networks which of its networks count")
    if args.output and args.output.exists() and (not args.output.is_dir() or any(args.output.iterdir())):
        # Files of another set would be built with these.
        raise UserError(f"--output: {args.output} exists and is no empty folder; name a new one")
    limits = shipping.SetLimits(args.max_loss, args.max_kernels, args.max_bytes)
    emitter = shipped_project.emitter_of(listed.arch, args.ck_api)
    if args.ck_api and not (emitter and emitter.levels):
        raise UserError(f"--ck-api is for AMD's CK Tile kernels, not for {listed.arch}")
    models = {name: Model.read(args.models / listed.operations[name].folder, args.threads) for name in operations}
    pools = [_pool(args, model, name, emitter) for name, model in models.items()]
    sets = shipping.smallest_sets(pools, limits)
    # Whole or not at all, on a full disk too.
    with building(args.output) if args.output else nullcontext() as folder:
        about, lines = _ship(folder, listed, list(zip(pools, sets, strict=True)), models, emitter, args.max_loss)
    if args.output:
        use = BUILD_COMMAND if emitter else library_of_arch(listed.arch).use
        lines.append(f"next: {use.format(folder=shlex.quote(str(args.output)))}")
    return options.answer(args, about, lines)


def _ship(
    folder: Path | None,
    listed: model_files.Index,
    sets: Sequence[tuple[shipping.KernelPool, Sequence[int]]],
    models: Mapping[str, Model],
    emitter: Emitter | None,
    loss: float,
) -> tuple[dict[str, Any], list[str]]:
    """Write the sets of kernels into a folder, if there is one; return what is said of them, as JSON and as lines."""
    content, shipped, max_loss = {}, {}, percent(loss)
    lines = [f"{listed.arch}, {listed.device_kind} times"]
    for pool, columns in sets:
        operation, names = pool.measurements.operation, [pool.names[column] for column in columns]
        chosen: dict[str, Any] = {"set": pool.figures(columns), "pool": len(pool.names), "kernels": names}
        chosen["curve"] = pool.curve(columns)
        if folder:
            whole = models[operation]
            own = whole.with_pool(whole.pool["kernel"].isin(names).to_numpy())
            chosen["model"] = shipping.losses(pool, {"of the pool": whole, "of the set": own})
            shipped_project.write_selector(folder / operation, pool.measurements, own)
            shipped[operation] = own, pool.example(columns)
        content[operation] = chosen
        lines += _lines(operation, chosen, pool, max_loss)
    about = {"arch": listed.arch, "device_kind": listed.device_kind, "max_loss": max_loss, "operations": content}
    if folder:
        every = [name for chosen in content.values() for name in chosen["kernels"]]
        write_text(folder / "kernels.txt", "".join(f"{name}\n" for name in sorted(every)))
        if emitter:
            shipped_project.write_project(folder, listed.arch, shipped, emitter)
        write_text(folder / "figures.json", json_text(about))
    return about, lines


def _pool(args: argparse.Namespace, model: Model, operation: str, emitter: Emitter | None) -> shipping.KernelPool:
    """Return the kernels of a model, from the results that the models lie in."""
    results, arch = args.models.resolve().parents[1], model.spec.arch
    dataset, made = results / "datasets" / arch / operation, dict[str, str]()
    if (args.models / model_files.PROVENANCE).is_file():
        made = read_provenance(args.models).operations[operation].inputs
    pairs = next((path for path in made if path.endswith("/pairs.parquet")), "")
    if pairs and not dataset.is_dir():
        # That of a recording is where the models say.
        dataset = (results.parent / pairs).parent
    if not dataset.is_dir():
        raise UserError(
            f"{dataset}: there is no such folder; MODEL_DIR must be in the results folder of the run that published "
            f"it, results/models of a checkout, and no copy; tileseer run --arch {arch} makes both there"
        )
    if pairs and file_digest(dataset / "pairs.parquet") != made[pairs]:
        raise UserError(
            f"{dataset}: another run has made it since {args.models} were made of it; repeat the run of these models"
        )
    measurements, weight = Dataset.read(dataset), None
    if args.networks:
        layers = find_file(args.layers or Path("config/problems/layers.csv"))
        weight = shipping.network_weights(measurements, layers, args.networks.split(","))
    kernels = parse_kernels(sorted(set(measurements.candidates["kernel"]))) if emitter else []
    without = {kernel.name for kernel in kernels if emitter and emitter.lack(kernel, target(arch))}
    return shipping.KernelPool.of(measurements, model.pool["candidate"], weight, without)


def _lines(operation: str, chosen: Mapping[str, Any], pool: shipping.KernelPool, max_loss: float) -> list[str]:
    """Return the set, and the sets of other sizes, as text."""
    rows = [{column: _cell(figures.get(column)) for column in SHOWN_COLUMNS} for figures in chosen["curve"]]
    lines = [shipping.set_line(operation, chosen["set"], chosen["pool"]), *options.table_lines(rows)]
    if (loss := chosen["set"]["loss"]) > max_loss:
        lines.append(f"the other limits win over --max-loss: {operation} loses {loss:g} %, more than {max_loss:g} %")
    if pool.without:
        lines.append(f"without {len(pool.without)} kernels that this level of the library's API does not have")
    if chosen.get("model"):
        losses = ", ".join(f"{name} {figures['loss']:.2f} %" for name, figures in chosen["model"].items())
        lines.append(f"loss of the model's picks on unseen problems: {losses}")
    return lines


def _cell(value: float | None) -> str:
    return "" if value is None else str(value) if isinstance(value, int) else f"{value:.2f}"
