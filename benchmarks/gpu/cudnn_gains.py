"""Time of cuDNN's first plan and of PyTorch over that of a model's picks, as docs/internals/results.md shows them.

    python benchmarks/gpu/cudnn_gains.py benchmarks/gpu/logs/cudnn/retime/*.jsonl.xz

The harness that wrote them timed picks, first plan and PyTorch in turns on an H200. It is gone: plans are measured by
the benchmark stage now (config/cudnn.yaml).
"""

from __future__ import annotations

import argparse
import collections
import json
import lzma
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

RIVALS = {
    "first": "cuDNN's first plan",
    "torch": "PyTorch's default",
    "torch_benchmark": "PyTorch's benchmark mode",
}
SLOWER = 1.02


def median_times(event: Mapping[str, Any]) -> dict[str, float]:
    """Median microseconds of ``pick`` and rivals of a layer; instead of a pick that does not run, the first plan."""
    contest = event["contest"]
    medians = {name: statistics.median(row) for name, row in contest["us"].items()}
    times = {name: medians[name] for name in RIVALS if name in medians}
    if contest["first"] is None:
        return times
    first = medians[str(contest["first"])]
    return times | {"first": first, "pick": medians.get(str(event["pick"]), first)}


def gains(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the table: time of each rival over the pick's, by direction and together."""
    ratios: dict[tuple[str, str], list[tuple[float, float]]] = collections.defaultdict(list)
    moved: dict[str, list[bool]] = collections.defaultdict(list)
    for event in events:
        times = median_times(event)
        direction = event["case"].partition("/")[0].rpartition("_")[0]
        for group in (direction, "all") if "pick" in times else ():
            moved[group].append(event["pick"] not in (None, event["contest"]["first"]))
            for rival in RIVALS.keys() & times.keys():
                ratios[group, rival].append((times[rival], times["pick"]))
    rows = []
    for (group, rival), pairs in sorted(ratios.items(), key=lambda item: (item[0][0], list(RIVALS).index(item[0][1]))):
        gain = sorted(theirs / ours for theirs, ours in pairs)
        tenths = statistics.quantiles(gain, n=10, method="inclusive")
        rows.append(
            {
                "direction": group,
                "against": RIVALS[rival],
                "layers": len(gain),
                "another plan": f"{statistics.fmean(moved[group]):.1%}",
                "geometric mean": f"{statistics.geometric_mean(gain):.3f}",
                "10th percentile": f"{tenths[0]:.3f}",
                "90th percentile": f"{tenths[-1]:.3f}",
                "slower by 2 % or more": f"{statistics.fmean(ratio <= 1 / SLOWER for ratio in gain):.1%}",
                "sum of times": f"{sum(theirs for theirs, _ in pairs) / sum(ours for _, ours in pairs):.3f}",
            }
        )
    return rows


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("journals", nargs="+", type=Path)
    events = []
    for path in parser.parse_args().journals:
        with lzma.open(path, "rt") as file:
            events += [json.loads(line) for line in file]
    rows = gains(event for event in events if event["event"] == "case" and "contest" in event)
    print("| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0]), sep="\n")
    for row in rows:
        print("| " + " | ".join(map(str, row.values())) + " |")


if __name__ == "__main__":
    main()
