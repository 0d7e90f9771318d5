"""Measure the cases of a list on every GPU of this machine, in the order of the list, until the time is over.

A worker a GPU takes the next case when it is done with one. A plan that ends its worker, or does not answer, is barred
and the case measured again in a new worker. First every GPU measures a few small cases; if what they say makes no
sense, nothing else is measured.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import csv
import lzma
import os
import queue
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cudnn_plans import journal
from cudnn_plans.case import BENCHMARK, COLUMNS, DEFAULT
from tileseer.conv.problem import DIMS, Problem
from tileseer.core import lock
from tileseer.core.errors import UserError, reports_user_errors
from tileseer.devices.harness.process import Fault, Worker

WORKER = ("-m", "cudnn_plans.worker")
START_S = 90.0
CASE_S = 45.0
"""A case that takes longer hangs: what is in flight is given up."""
FAULTS = 3
"""Plans that a case may lose with their workers before it is given up."""
LAST_S = 12.0
"""Before the end: no case begins, and what is in flight is ended."""
FLUSH_S = 15.0
MOST_LAUNCHES = 10
SELF_TEST = (
    ("forward", "bf16", {"N": 16, "C": 128, "K": 128, "Hi": 28, "Wi": 28, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}),
    ("bwd_data", "fp16", {"N": 16, "C": 256, "K": 128, "Hi": 28, "Wi": 28}),
    ("bwd_weight", "bf16", {"N": 8, "C": 64, "K": 64, "Hi": 56, "Wi": 56, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}),
)
"""Small cases, of which a machine that works finds many plans that are right."""


def cases(path: Path) -> list[dict[str, Any]]:
    """Read a list of cases, in its order: a name, a split, the problem."""
    with lzma.open(path, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        {
            "case": f"{row['variant']}_{row['dtype']}/{row['problem_key']}",
            "split": row["split"],
            "problem": problem(row["variant"], row["dtype"], {name: int(row[name]) for name in DIMS}),
        }
        for row in rows
    ]


def problem(variant: str, dtype: str, dims: dict[str, int]) -> dict[str, Any]:
    """A problem as the worker reads it."""
    return vars(Problem.from_dims(variant, dtype, **dims))


class Gpu:
    """One GPU and its worker."""

    def __init__(
        self, number: int, visible: str, program: Sequence[str], limit_s: float = CASE_S, also: Mapping[str, str] = {}
    ) -> None:
        self.number, self._visible, self._program, self._limit_s = number, visible, program, limit_s
        self._also = also
        self._stopped = False
        self._worker: Worker | None = None
        self.facts: dict[str, Any] = {}
        self.busy_s = 0.0

    def start(self) -> None:
        """Start a worker unless there is one; a ``Fault`` if the GPU does not work."""
        if self._stopped:
            raise Fault("crash", "the time is over")
        if self._worker is None:
            self._worker = Worker({"CUDA_VISIBLE_DEVICES": self._visible}, self._program)
            self.facts = self._ask({"do": "facts"}, START_S)

    def stop(self) -> None:
        """End the worker, whatever it does; the thread that waits for it gets a ``Fault``."""
        self._stopped = True
        worker = self._worker
        if worker is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)

    def _ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        assert self._worker is not None
        try:
            return self._worker.ask(request, limit_s)
        except BaseException:
            self._worker = None
            raise

    def measure(self, given: dict[str, Any], rivals: Sequence[str]) -> dict[str, Any]:
        """Measure one case, in a new worker after each fault."""
        begin = time.monotonic()
        barred: list[int] = []
        faults: list[str] = []
        rivals = list(rivals)
        while len(faults) < FAULTS:
            request = {
                "do": "measure", "problem": given["problem"], "seed": given["case"], "barred": barred,
                "rivals": rivals, "most_launches": MOST_LAUNCHES, **self._also,
            }  # fmt: skip
            self.start()
            try:
                answer = self._ask(request, self._limit_s)
                break
            except Fault as fault:
                text = str(fault)
                faults.append(f"{fault.kind}: {text}"[:300])
                flight = text.partition(" in phase ")[2].split(":")[0]
                if flight.startswith("plan "):
                    barred.append(int(flight.split()[1]))
                elif flight in rivals:
                    rivals.remove(flight)
                elif fault.kind == "run_timeout":
                    # Nothing to leave out: it would take as long again.
                    answer = {"failed": "run_timeout", "told": text[:160]}
                    break
        else:
            answer = {"failed": "crash", "told": faults[-1]}
        self.busy_s += time.monotonic() - begin
        return {
            "event": "case", "case": given["case"], "split": given["split"], "gpu": self.number, "faults": faults,
            **answer,
        }  # fmt: skip


def visible_gpus() -> list[tuple[str, str]]:
    """UUID and driver of each GPU of this machine."""
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=uuid,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError(f"nvidia-smi does not list the GPUs of this machine: {error}") from None
    rows = [line.split(",") for line in listed.stdout.splitlines() if line.strip()]
    return [(uuid.strip(), driver.strip()) for uuid, driver in rows]


def fault_of(event: dict[str, Any]) -> str:
    """What is wrong with a case of the self-test, or an empty string."""
    if "failed" in event:
        return f"{event['failed']}: {event['told']} {event['faults']}"
    plans = [dict(zip(COLUMNS, row, strict=True)) for row in event["plans"]]
    right = [plan for plan in plans if plan["status"] == "ok"]
    if len(plans) < 5 or len(right) < 3:
        told = collections.Counter((plan["status"], plan["told"]) for plan in plans).most_common(3)
        return f"{len(plans)} plans offered, {len(right)} right; most often {told}"
    if not all(plan["name"].startswith("eng") for plan in plans):
        return f"the plans have other names: {plans[0]['name']!r}"
    contest = event["contest"]
    if contest["first"] is None or set(contest["errors"]) != {DEFAULT, BENCHMARK}:
        return f"the contest lacks the library's own choice or PyTorch: {contest['told']}"
    medians = {name: statistics.median(row) for name, row in contest["us"].items()}
    if not all(1 < us < 2000 for us in medians.values()):
        return f"times in the contest are no times of small convolutions: {medians}"
    best = min(plan["us"][0] for plan in right)
    if not 0.3 < min(medians.values()) / best < 3:
        return f"the contest's best {min(medians.values()):.1f} us is far from the best of single samples {best:.1f} us"
    late, rows = event["late"]
    return f"{late} of {rows} rows were timed at the speed of the host" if late > 0.5 * rows else ""


class Progress:
    """Counts of a run, and lines about them."""

    def __init__(self, known: int, total: int) -> None:
        self._begin = time.monotonic()
        self._known, self._total = known, total
        self._plans = self._cases = 0
        self._statuses: collections.Counter[str] = collections.Counter()
        self._splits: collections.Counter[str] = collections.Counter()
        self._build_s = self._plan_s = self._contest_s = 0.0
        self._gains: dict[str, list[float]] = collections.defaultdict(list)

    def add(self, event: dict[str, Any]) -> None:
        """Count a case."""
        self._cases += 1
        operation = event["case"].partition("/")[0]
        self._splits[f"{operation} {event['split']}"] += 1
        if "failed" in event:
            self._statuses[f"case {event['failed']}"] += 1
            return
        plans = [dict(zip(COLUMNS, row, strict=True)) for row in event["plans"]]
        self._plans += len(plans)
        self._statuses.update(plan["status"] for plan in plans)
        self._build_s += sum(plan["build_ms"] for plan in plans) / 1000
        self._plan_s += event["seconds"][0]
        self._contest_s += event["seconds"][1]
        contest = event["contest"]
        own = [statistics.median(row) for name, row in contest["us"].items() if name.isdigit()]
        if contest["first"] is not None:
            self._gains["first"].append(statistics.median(contest["us"][str(contest["first"])]) / min(own))
        for rival in set(contest["errors"]) & set(contest["us"]) if own else ():
            self._gains[rival].append(statistics.median(contest["us"][rival]) / min(own))

    def line(self) -> str:
        """What was done until now."""
        seconds = time.monotonic() - self._begin
        gains = ", ".join(f"{name} {statistics.geometric_mean(over):.3f}" for name, over in self._gains.items())
        return (
            f"{seconds:.0f} s: {self._known + self._cases} of {self._total} cases, {self._plans} plans in this run "
            f"({self._plans / max(seconds, 1e-9):.0f} a second), {dict(self._statuses.most_common())}; "
            f"plans {self._plan_s:.0f} s of which building {self._build_s:.0f}, contests {self._contest_s:.0f} s; "
            f"time over the best plan's: {gains or 'none yet'}"
        )

    def balance(self) -> str:
        """How many cases of each operation and split."""
        return ", ".join(f"{name} {count}" for name, count in sorted(self._splits.items()))


def rivals_of(split: str) -> list[str]:
    """What contends beside plans: benchmark mode is slow to start, so only where a model is judged."""
    return [DEFAULT, BENCHMARK] if split == "validation" else [DEFAULT]


def self_test(gpus: Sequence[Gpu], tell: Any) -> list[Gpu]:
    """Start all workers and measure small cases; the GPUs that work. ``UserError`` if none does or one is wrong."""
    working: list[Gpu] = []
    faults: list[str] = []

    def check(gpu: Gpu) -> None:
        try:
            gpu.start()
            for place, (variant, dtype, dims) in enumerate(SELF_TEST):
                given = {"case": f"test {place}", "split": "validation", "problem": problem(variant, dtype, dims)}
                event = gpu.measure(given, rivals_of("validation"))
                if fault := fault_of(event):
                    faults.append(f"GPU {gpu.number}: {variant} {dtype}: {fault}")
                    return
                tell(
                    f"GPU {gpu.number}: {variant} {dtype}: {len(event['plans'])} plans, {event['seconds']} s, "
                    f"{ {name: round(statistics.median(row), 1) for name, row in event['contest']['us'].items()} }"
                )
            working.append(gpu)
        except (Fault, UserError) as error:
            tell(f"GPU {gpu.number} is left out: {error}")

    threads = [threading.Thread(target=check, args=(gpu,)) for gpu in gpus]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise UserError("the self-test failed; nothing was measured: " + "; ".join(faults))
    if not working:
        raise UserError("no GPU works: see above")
    return sorted(working, key=lambda gpu: gpu.number)


def run(gpus: Sequence[Gpu], todo: Iterator[dict[str, Any]], end: float) -> Iterator[dict[str, Any] | None]:
    """Measure side by side until ``end``; yield each event, or None where there is time to do something else."""
    events: queue.Queue[dict[str, Any] | None] = queue.Queue()
    turn = threading.Lock()

    def work(gpu: Gpu) -> None:
        try:
            while time.monotonic() < end - LAST_S:
                with turn:
                    given = next(todo, None)
                if given is None:
                    break
                events.put(gpu.measure(given, rivals_of(given["split"])))
        except (Fault, UserError) as error:
            if time.monotonic() < end - LAST_S:
                events.put({"event": "lost", "gpu": gpu.number, "told": str(error)})
        finally:
            events.put(None)

    for gpu in gpus:
        threading.Thread(target=work, args=(gpu,), daemon=True).start()
    working = len(gpus)
    while working:
        left = end - LAST_S / 2 - time.monotonic()
        if left <= 0:
            break
        try:
            event = events.get(timeout=min(1.0, left))
        except queue.Empty:
            yield None
            continue
        if event is None:
            working -= 1
        else:
            yield event


@reports_user_errors
def main() -> None:
    """Measure until the time is over or nothing is left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", required=True, type=Path, help="the list")
    parser.add_argument("--carried", required=True, type=Path, help="folder with journals of earlier runs")
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--seconds", required=True, type=float)
    parser.add_argument("--first", type=int, default=0, help="only so many cases of the list")
    parser.add_argument("--worker", help=argparse.SUPPRESS, nargs="+", default=WORKER)
    parser.add_argument("--gpus", help=argparse.SUPPRESS, nargs="+")
    args = parser.parse_args()
    end = time.monotonic() + args.seconds

    def tell(text: str) -> None:
        print(time.strftime("%H:%M:%S ", time.gmtime()) + text, flush=True)

    listed = cases(args.cases)
    earlier = journal.files([args.carried, args.output])
    known = journal.done(earlier)
    todo = [case for case in listed if case["case"] not in known][: args.first or None]
    tell(f"{len(listed)} cases, {len(known)} of them in {len(earlier)} earlier files")
    boards = [(name, "") for name in args.gpus] if args.gpus else visible_gpus()
    # Each its own number, so that files of several calls lie in one folder.
    number = 1 + max((int(path.name.split(".")[1]) for path in earlier), default=0)
    written = journal.Journal(args.output / f"cases.{number}.jsonl.xz")
    gpus = [Gpu(place, uuid, tuple(args.worker)) for place, (uuid, _) in enumerate(boards)]
    with contextlib.ExitStack() as held:
        for uuid, _ in boards:
            held.enter_context(lock.any_of([uuid], lock.lock_folder(None), 1.0))
        try:
            working = self_test(gpus, tell)
            for gpu in working:
                written.add({"event": "gpu", "number": gpu.number, "driver": boards[gpu.number][1], **gpu.facts})
            tell(f"self-test passed on {len(working)} GPUs: {working[0].facts}")
            progress = Progress(len(known), len(listed))
            flushed = told = time.monotonic()
            for event in run(working, iter(todo), end):
                now = time.monotonic()
                if event is not None:
                    written.add(event | {"at": round(time.time(), 1)})
                    if event["event"] == "case":
                        progress.add(event)
                    else:
                        tell(f"GPU {event['gpu']} is lost: {event['told']}")
                if now - flushed > FLUSH_S:
                    written.flush()
                    flushed = now
                if now - told > FLUSH_S:
                    tell(progress.line())
                    told = now
            tell(progress.line())
            tell(progress.balance())
        finally:
            written.flush()
            for gpu in gpus:
                gpu.stop()


if __name__ == "__main__":
    raise SystemExit(main())
