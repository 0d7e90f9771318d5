"""``tileseer tune``: time the short list of each problem once, on this machine's GPU, and remember the fastest."""

import argparse
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tileseer.cli import options
from tileseer.core.errors import UserError
from tileseer.core.places import find_file
from tileseer.core.progress import Progress
from tileseer.facts.operations import DTYPES, VARIANTS
from tileseer.learn import model_files
from tileseer.libraries.problem_lists import read_problems
from tileseer.libraries.registry import examples, library_of_arch

EXAMPLES = (
    *examples("tune"),
    "tileseer tune results/models/gfx950 --problems problems.csv",
    "tileseer tune results/models/gfx950 --problems problems.csv --variant forward --minutes 5",
    "tileseer tune results/models/gfx950 --problems problems.csv --top 2 --json",
)
TIMING_DEVICES = ("gpu", "simulated", "recorded")
OF_KIND = {"simulated": "simulated", "recorded": "recorded", "measured": "gpu"}
"""Device of the times that a model learnt."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.add_models(parser)
    options.add_problem_file(parser)
    parser.add_argument("--variant", choices=VARIANTS, help="only this direction (default: all of the model)")
    parser.add_argument("--dtype", choices=DTYPES, help="only this data type")
    meaning = "candidates of a short list, beside what runs without timing (default: 3)"
    parser.add_argument("--top", type=options.positive, default=3, help=meaning)
    minutes = options.number(float, lambda value: 0 < value < math.inf, "positive number of minutes, such as 10")
    parser.add_argument("--minutes", type=minutes, default=math.inf, help="begin no problem after this time")
    parser.add_argument("--device", choices=TIMING_DEVICES, help="what times (default: the kind of the model's times)")
    meaning = "program of the models' library that times its kernels, where it has one (never run on an AMD GPU so far)"
    parser.add_argument("--driver", default="", metavar="PROGRAM", help=meaning)
    meaning = "folder with driver.so and OPERATION/CHUNK.so (default: results/libraries/ARCH beside the models)"
    parser.add_argument("--libraries", type=Path, metavar="DIR", help=meaning)
    meaning = "folder of the recorded times (default: config/recorded/ARCH)"
    parser.add_argument("--recording", type=Path, metavar="DIR", help=meaning)
    options.add_tables(parser)
    parser.epilog = (
        "The choices are in MODEL_DIR.tuned; select takes them first. What is tuned there already is not timed again: "
        "stop and run again as you like, and remove the folder to forget."
    )


OF_DEVICE = {"libraries": "gpu", "driver": "gpu", "recording": "recorded"}
"""The device that an option is for."""


def _timed_by(args: argparse.Namespace, index: model_files.Index) -> tuple[str, Path]:
    """Return the device that times, and the folder of the recording, which only the device ``recorded`` reads.

    ``UserError`` for options of another device, and for a recording that is not there.
    """
    device = args.device or ("gpu" if args.driver else OF_KIND[index.device_kind])
    for option, wanted in OF_DEVICE.items():
        if (given := getattr(args, option)) and device != wanted:
            raise UserError(
                f"--{option} {given}: is for --device {wanted}, and the device is {device}; leave "
                f"it out, or write --device {wanted}"
            )
    if device == "recorded" and index.device_kind != device and not args.recording:
        raise UserError(
            f"--device recorded: the times of {args.models} are {index.device_kind}; leave it out, or name a "
            f"recording of {index.device} with --recording DIR"
        )
    recording = find_file(args.recording or args.config / "recorded" / index.arch)
    if device == "recorded" and not args.recording and not recording.is_dir():
        program = library_of_arch(index.arch).program
        way = f"--driver {program}" if program else "--device gpu"
        raise UserError(
            f"{args.models}: the recording of its times is not in {recording}; time on a GPU with {way}, or name it "
            "with --recording DIR"
        )
    if device == "recorded":
        from tileseer.data.dataset_files import read_recording

        given = read_recording(recording).arch
        if library_of_arch(given) is not library_of_arch(index.arch):
            raise UserError(f"--recording {recording}: has kernels of {given}; give a recording of {index.arch}")
    return device, recording


def run(args: argparse.Namespace) -> int:
    """Print what was gained per operation; return 1 if no problem has a choice."""
    # Measuring takes a second to import.
    from tileseer.serve import tuning
    from tileseer.serve.selector import Selector

    index = model_files.read_index(args.models)
    if args.driver:
        # Here, as what follows takes half a minute of a large list.
        tuning.check_driver(args.driver, index.arch)
    device, recording = _timed_by(args, index)
    operations = [
        name
        for name in index.operations
        if name.startswith(args.variant or "") and name.endswith(f"_{args.dtype}" if args.dtype else "")
    ]
    if not operations:
        words = " ".join(filter(None, (args.variant, args.dtype)))
        raise UserError(f"{args.models}: there is no model of {words}; it has {', '.join(index.operations)}")
    problems = read_problems(args.problems, operations)
    libraries = args.libraries or args.models.resolve().parent.parent / "libraries" / index.arch
    where = tuning.Where(
        device,
        options.table_of(args, "hardware.yaml"),
        options.table_of(args, "simulated_device.yaml"),
        recording,
        libraries,
        args.driver,
    )
    until = time.monotonic() + 60 * args.minutes
    summaries = []
    with Progress("tune", sum(map(len, problems.values())), "problems") as progress:
        for operation, own in problems.items():
            with tuning.claimed(Selector.read(args.models, operation), where, args.models) as timer:
                selector = Selector.read(args.models, operation, device=timer.name, is_here=True)
                results = []
                for result in tuning.tune(selector, args.models, own, timer, args.top, until):
                    results.append(result)
                    progress.add(failed=int(isinstance(result, tuning.LeftOut)))
                summaries.append(_summary(operation, timer.name, timer.device.kind, results, len(own)))
    content = {"arch": index.arch, "operations": summaries}
    return options.answer(
        args, content, _lines(args, summaries), not any(one["tuned"] + one["before"] for one in summaries)
    )


def _summary(operation: str, device: str, kind: str, results: list[Any], count: int) -> dict[str, Any]:
    """Return what came of one operation."""
    from tileseer.serve.tuning import LeftOut, Tuned

    tuned = [result for result in results if isinstance(result, Tuned)]
    left_out = [result for result in results if isinstance(result, LeftOut)]
    gains = np.array([result.gain for result in tuned])
    ran = gains[np.isfinite(gains)]
    rows = [
        {"problem": options.word_of(result.problem), "first": result.first, "choice": result.choice.candidate}
        | {"time_ms": result.choice.time_ms, "timed": result.choice.timed, "gain": result.gain}
        | {"noise": result.noise, "rounds": result.rounds}
        for result in tuned
    ]
    return {
        "operation": operation, "device": device, "device_kind": kind,
        "tuned": len(tuned), "before": results.count(None), "not_reached": count - len(results),
        "changed": sum(result.choice.candidate != result.first for result in tuned),
        "mean_gain": float(np.exp(np.log(ran).mean())) if len(ran) else math.nan,
        "largest_gain": float(ran.max()) if len(ran) else math.nan,
        "problems": rows,
        "left_out": [{"problem": options.word_of(one.problem), "reason": one.reason} for one in left_out],
    }  # fmt: skip


def _lines(args: argparse.Namespace, summaries: list[dict[str, Any]]) -> Iterator[str]:
    for one in summaries:
        yield "{operation} on {device}, device kind: {device_kind}".format(**one)
        before = f", {one['before']} tuned before" if one["before"] else ""
        yield f"  {one['tuned']} problems tuned{before}, {len(one['left_out'])} left out"
        if one["left_out"] and one["device_kind"] == "recorded":
            yield "  a recording has times of its own problems alone; --device gpu, or --driver, times others on a GPU"
        if one["tuned"]:
            yield (
                "  first pick / choice: {mean_gain:.4f} (geometric mean), {largest_gain:.4f} (largest); "
                "{changed} picks changed".format(**one)
            )
        for left in one["left_out"][:3]:
            yield f"  left out: {left['problem']}: {left['reason']}"
        if one["not_reached"]:
            yield f"  --minutes {args.minutes:g} are over: {one['not_reached']} problems left; run again to go on"
