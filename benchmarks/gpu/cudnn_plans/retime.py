"""Time what published models pick of the plans of unseen layers, against cuDNN's first plan and PyTorch, in turns.

Fresh runs: nothing of the recording is read. Each case is a validation problem of the list; their order is random, so
that a run cut at any time leaves a fair sample. Without a GPU, ``--gains`` tells what journals of such runs say.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cudnn_plans import journal
from cudnn_plans.case import BENCHMARK, COLUMNS, DEFAULT
from cudnn_plans.record import FLUSH_S, WORKER, Gpu, cases, run, visible_gpus
from cudnn_plans.selectors import Selectors
from tileseer.core.errors import UserError, reports_user_errors
from tileseer.devices.harness.process import Fault

FIRST = "first"
RIVALS = {FIRST: "cuDNN's first plan", DEFAULT: "PyTorch's default", BENCHMARK: "PyTorch's benchmark mode"}
SLOWER = 1.02


def times(event: Mapping[str, Any]) -> dict[str, float]:
    """Median microseconds of ``pick``, ``first`` and PyTorch; instead of a pick that does not run, the first plan."""
    contest = event["contest"]
    medians = {name: statistics.median(row) for name, row in contest["us"].items()}
    found = {name: medians[name] for name in (DEFAULT, BENCHMARK) if name in medians}
    if contest["first"] is None:
        return found
    found[FIRST] = medians[str(contest["first"])]
    return found | {"pick": medians.get(str(event["pick"]), found[FIRST])}


def gains(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the table: time of each rival over the pick's, by direction and together."""
    ratios: dict[tuple[str, str], list[tuple[float, float]]] = collections.defaultdict(list)
    moved: dict[str, list[bool]] = collections.defaultdict(list)
    for event in events:
        found = times(event)
        direction = event["case"].partition("/")[0].rpartition("_")[0]
        for where in (direction, "all") if "pick" in found else ():
            moved[where].append(event["pick"] not in (None, event["contest"]["first"]))
            for rival in RIVALS:
                if rival in found:
                    ratios[where, rival].append((found[rival], found["pick"]))
    rows = []
    for (where, rival), pairs in sorted(ratios.items(), key=lambda item: (item[0][0], list(RIVALS).index(item[0][1]))):
        gain = sorted(theirs / ours for theirs, ours in pairs)
        tenths = statistics.quantiles(gain, n=10, method="inclusive") if len(gain) > 1 else gain * 9
        rows.append(
            {
                "direction": where,
                "against": RIVALS[rival],
                "layers": len(gain),
                "another plan": f"{statistics.fmean(moved[where]):.1%}",
                "geometric mean": f"{statistics.geometric_mean(gain):.3f}",
                "10th percentile": f"{tenths[0]:.3f}",
                "90th percentile": f"{tenths[-1]:.3f}",
                "slower by 2 % or more": f"{statistics.fmean(ratio <= 1 / SLOWER for ratio in gain):.1%}",
                "sum of times": f"{sum(theirs for theirs, _ in pairs) / sum(ours for _, ours in pairs):.3f}",
            }
        )
    return rows


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a table of Markdown."""
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row.values())) + " |" for row in rows)])


def retimed(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The cases of journals that were timed to the end."""
    return [event for path in paths for event in journal.read(path) if event["event"] == "case" and "contest" in event]


def failed_picks(events: Iterable[Mapping[str, Any]]) -> list[str]:
    """Picks that did not run or were wrong, with what was told."""
    found = []
    for event in events:
        for row in event["plans"]:
            plan = dict(zip(COLUMNS, row, strict=True))
            if plan["rank"] == event["pick"] and plan["status"] != "ok":
                found.append(f"{event['case']}: {plan['name']}: {plan['status']} {plan['told']}")
    return found


@reports_user_errors
def main() -> None:
    """Time picks until the time is over, or tell what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gains", nargs="+", type=Path, metavar="JOURNAL", help="only print the table of these")
    parser.add_argument("--cases", type=Path, default=Path("benchmarks/gpu/cudnn_cases.csv.xz"))
    parser.add_argument("--models", type=Path, help="folder of the published models")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--worker", help=argparse.SUPPRESS, nargs="+", default=WORKER)
    parser.add_argument("--gpus", help="UUIDs; all without", nargs="+")
    args = parser.parse_args()
    if args.gains:
        events = retimed(args.gains)
        if not events:
            raise UserError(f"{args.gains[0]}: there is no case in it that was timed to the end")
        print(markdown(gains(events)))
        for line in failed_picks(events):
            print(line)
        return
    end = time.monotonic() + args.seconds
    built = args.output / "built"
    todo = [case for case in cases(args.cases) if case["split"] == "validation"]
    todo.sort(key=lambda case: hashlib.sha256(f"retime {case['case']}".encode()).hexdigest())
    operations = sorted({case["case"].partition("/")[0] for case in todo})
    selectors = Selectors(args.models, built)
    with ThreadPoolExecutor() as pool:
        list(pool.map(selectors.build, operations))
    also = {"models": str(args.models), "built": str(built)}
    boards = [(name, "") for name in args.gpus] if args.gpus else visible_gpus()
    gpus = [Gpu(place, uuid, tuple(args.worker), also=also) for place, (uuid, _) in enumerate(boards)]
    written, count = journal.Journal(args.output / "retimed.jsonl.xz"), 0
    try:
        flushed = time.monotonic()
        for gpu in gpus:
            try:
                gpu.start()
            except Fault as fault:
                raise UserError(f"GPU {gpu.number} does not work: {fault}") from None
            written.add({"event": "gpu", "number": gpu.number, "driver": boards[gpu.number][1], **gpu.facts})
        for event in run(gpus, iter(todo), end):
            if event is not None:
                written.add(event)
                count += 1
            if time.monotonic() - flushed > FLUSH_S:
                written.flush()
                flushed = time.monotonic()
                print(f"{count} of {len(todo)} cases", flush=True)
    finally:
        written.flush()
        for gpu in gpus:
            gpu.stop()
    print(markdown(gains(retimed([args.output / "retimed.jsonl.xz"]))))


if __name__ == "__main__":
    raise SystemExit(main())
