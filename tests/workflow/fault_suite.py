"""Inject faults into a workflow and count what becomes of them. The same seed injects the same faults.

    PYTHONPATH=src:tests/builders python tests/workflow/fault_suite.py --stage-kills 200 --report faults.md

A fault is *recovered* if a plain rerun ends with the bytes of the undisturbed run; *refused* if the stage stops with a
message that names the file, writes nothing, and gives those bytes once the file is as it was; *lost* otherwise. What
cannot be injected on this machine is counted as that. ``--log`` and ``--folder`` let a suite that was stopped go on.
"""

from __future__ import annotations

import argparse
import glob
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import compiler_faults
import edit_faults
import hostile_faults
import lock_faults
import publication_faults
import worker_faults
from fault_injection import NOT_INJECTED, PAGE, Suite, entries, may_mount, prepare

FAKETIME = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/local/lib/faketime/libfaketimeMT.so.1")
"""Where Debian's package libfaketime, or ``make install`` of its sources, puts the library that moves the clock."""


def faketime() -> Path | None:
    """Return the library that moves the clock of a process, if it is installed."""
    return next((Path(found) for pattern in FAKETIME for found in sorted(glob.glob(pattern))), None)


def kind_of(fault: str) -> str:
    """Return the kind of a fault: what was done, without the stage, the call or the sort of file that it hit."""
    fault = re.sub(r"^(kill -9 of) (?!a |Snakemake)\w+( while compiling| beside readers)?$", r"\1 a stage", fault)
    return re.sub(
        r"(, in (one|all) calls?.*|,? for \w+| in an? (text file|model|Parquet file|JSON file|bundle|receipt))$",
        "",
        fault,
    )


def table(faults: Counter[tuple[str, str]]) -> str:
    """Return the counts of each kind of fault as a Markdown table."""
    counts = Counter[tuple[str, str]]()
    for (fault, outcome), count in faults.items():
        counts[kind_of(fault), outcome] += count
    lines = [
        "| fault | injected | recovered | refused with a message | lost | not injected |", "|---|---|---|---|---|---|"
    ]  # fmt: skip
    rows = {
        fault: [counts[fault, outcome] for outcome in ("recovered", "refused", "lost", NOT_INJECTED)]
        for fault in sorted({fault for fault, _ in counts})
    }
    kills = [row for fault, row in rows.items() if "kill -9" in fault]
    rows |= {f"**{name}**": [sum(column) for column in zip(*of, strict=True)]
             for name, of in (("kills alone", kills), ("all", list(rows.values()))) if of}  # fmt: skip
    for fault, row in rows.items():
        lines.append(f"| {fault} | {sum(row[:3])} | {' | '.join(map(str, row))} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the suite and print or write its table; status 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stage-kills", type=int, default=20)
    parser.add_argument("--run-kills", type=int, default=0)
    parser.add_argument("--compiler-kills", type=int, default=0, help="of the compile stage, with its compiler")
    parser.add_argument("--worker-kills", type=int, default=0, help="of workers that measure (needs a C++ compiler)")
    parser.add_argument("--damages", type=int, default=40)
    parser.add_argument("--compiler-faults", type=int, default=0)
    parser.add_argument("--times", type=int, default=0, help="finished runs whose files get other times")
    parser.add_argument("--clocks", type=int, default=0, help="runs whose clock jumps (needs libfaketime)")
    parser.add_argument("--whole-disks", action="store_true", help="fill disks under whole runs, too")
    parser.add_argument("--edits", type=int, default=0, help="of files while a whole run is alive")
    parser.add_argument("--publish-kills", type=int, default=0, help="while others read what is published")
    parser.add_argument("--reads", type=int, default=500, help="beside each of these kills")
    parser.add_argument("--entries", type=int, default=0, help="hostile ones of the stage store")
    parser.add_argument("--recordings", type=int, default=0, help="hostile ones")
    parser.add_argument("--users", action="store_true", help="two of them share a lock (needs root)")
    parser.add_argument("--locks", action="store_true", help="lose locks while they are held, and replace them")
    parser.add_argument("--no-flock", type=int, default=0, help="commands to call where flock fails, in three ways")
    parser.add_argument("--folder", type=Path, help="where the workflow is, or is to be made; kept for the next call")
    parser.add_argument("--log", type=Path, help="file of outcomes; what it holds is not injected again")
    parser.add_argument("--report", type=Path, help="page whose table between the marks is replaced")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="tileseer-faults-") as temporary:
        suites = list(inject(args, args.folder or Path(temporary)))
    counts = sum((suite.counts for suite in suites), start=Counter())
    if args.log:
        counts = Counter((fault, outcome) for _, fault, outcome in entries(args.log))
    text = table(counts)
    print(text)
    if args.report:
        before, begin, rest = args.report.read_text().partition("<!-- faults -->\n")
        args.report.write_text(before + begin + text + "<!-- end" + rest.partition("<!-- end")[2])
    return int(any(outcome == "lost" for _, outcome in counts))


def inject(args: argparse.Namespace, folder: Path) -> Iterator[Suite]:
    """Inject what was asked for; yield the suites that did."""
    if args.compiler_faults or args.compiler_kills:
        compiling = compiler_faults.prepare(folder, args.seed, args.log)
        compiler_faults.inject(compiling, args.compiler_faults)
        compiler_faults.kill_compiling(compiling, args.compiler_kills)
        yield compiling
    if args.recordings:
        replaying = hostile_faults.prepare_recording(folder, args.seed, args.log)
        hostile_faults.plant_recordings(replaying, args.recordings)
        yield replaying
    suite = prepare(folder, args.seed, args.log)
    yield suite
    suite.kill_stages(args.stage_kills)
    suite.damage_files(args.damages)
    worker_faults.kill_workers(suite, args.worker_kills, folder)
    for options, fault in ((f"size={PAGE}", "disk full"), ("ro", "read-only folder")) if may_mount() else ():
        suite.fill_disks(options, fault)
        if args.whole_disks:
            suite.fill_disks_of_runs(options, fault)
    if not may_mount():
        suite.count("disk full and read-only folder (no right to mount)", NOT_INJECTED, "")
    if args.clocks and faketime() is None:
        print(
            f"no clock jumps: none of {', '.join(FAKETIME)} is there; install libfaketime (apt-get install libfaketime)"
        )
    suite.jump_clocks(args.clocks, faketime())
    suite.jump_times(args.times)
    suite.kill_runs(args.run_kills)
    publication_faults.kill_publications(suite, args.publish_kills, args.reads)
    hostile_faults.plant_entries(suite, args.entries)
    if args.users:
        lock_faults.share_between_users(suite)
    if args.locks:
        lock_faults.lose_locks(suite)
        lock_faults.plant_locks(suite)
    lock_faults.fail_flock(suite, args.no_flock)
    edit_faults.edit_runs(suite, args.edits)


if __name__ == "__main__":
    raise SystemExit(main())
