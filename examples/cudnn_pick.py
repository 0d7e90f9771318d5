"""Run the convolutions of whole networks with picked plans of cuDNN, and tell the gain against PyTorch.

    PYTHONPATH=src:benchmarks/gpu python examples/cudnn_pick.py results/models/sm_90_cudnn tv_resnet50 yolov8s sd_vae

needs a GPU, PyTorch, the package nvidia-cudnn-frontend and a C++ compiler. A network is a name of the table of layers
(config/problems/layers.csv): its first training run, every distinct convolution with how often it occurs. Each is timed
in turns by the picked plan, by cuDNN's first plan, and by PyTorch with and without benchmark mode; times are summed.
"""

from __future__ import annotations

import argparse
import collections
import csv
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cudnn_plans import library
from cudnn_plans.case import BENCHMARK, DEFAULT
from cudnn_plans.record import MOST_LAUNCHES, problem
from cudnn_plans.retime import FIRST, RIVALS, markdown, times

from tileseer.conv.operation import VARIANTS
from tileseer.conv.problem import DIMS
from tileseer.core.errors import UserError, reports_user_errors


def convolutions(table: Path, network: str, dtype: str) -> Iterator[tuple[str, dict[str, Any], int]]:
    """Direction, problem and occurrences of each convolution of a network's first training run."""
    with table.open(newline="", encoding="utf-8") as file:
        own = [row for row in csv.DictReader(file) if row["network"] == network and row["run"].startswith("train")]
    if not own:
        raise UserError(f"{table}: there is no training run of {network!r} in it")
    for row in own:
        if row["run"] == own[0]["run"]:
            for variant in VARIANTS:
                if variant in row["directions"].split("+"):
                    dims = {name: int(row[name]) for name in DIMS}
                    yield variant, problem(variant, dtype, dims), int(row["occurrences"])


@reports_user_errors
def main() -> None:
    """Print a table of each network: the times of the others are over those of the picks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, help="folder of the published models")
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--dtype", choices=("bf16", "fp16"), default="bf16")
    parser.add_argument("--layers", type=Path, default=Path("config/problems/layers.csv"))
    args = parser.parse_args()
    opened = library.opened()
    with tempfile.TemporaryDirectory() as built:
        for network in args.networks:
            sums: dict[str, dict[str, float]] = collections.defaultdict(lambda: dict.fromkeys(("pick", *RIVALS), 0.0))
            counts: collections.Counter[str] = collections.Counter()
            for variant, wanted, occurrences in convolutions(args.layers, network, args.dtype):
                request = {
                    "problem": wanted, "seed": f"{network} {counts['training step']}", "barred": [],
                    "rivals": [DEFAULT, BENCHMARK], "most_launches": MOST_LAUNCHES,
                    "models": str(args.models), "built": built,
                }  # fmt: skip
                event = opened.measure(request, lambda phase: None)
                found = times(event) if "contest" in event else {}
                if len(found) < len(RIVALS) + 1:
                    print(f"{network}: a convolution is left out: {event.get('told') or event['contest']['told']}")
                    continue
                for step in ("training step", *(["forward"] if variant == "forward" else [])):
                    counts[step] += 1
                    counts[f"{step} moved"] += event["pick"] not in (None, event["contest"]["first"])
                    for name, us in found.items():
                        sums[step][name] += us * occurrences
            rows = []
            for step in ("forward", "training step"):
                ours = sums[step]["pick"]
                rows.append(
                    {
                        "network": network, "convolutions of": step, "distinct": counts[step],
                        "with another plan than the first": counts[f"{step} moved"], "picks, ms": f"{ours / 1000:.3f}",
                        **{RIVALS[name]: f"{sums[step][name] / ours:.3f}" for name in (FIRST, DEFAULT, BENCHMARK)},
                    }
                )  # fmt: skip
            print(markdown(rows), flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
