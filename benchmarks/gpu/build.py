#!/usr/bin/env python3
"""Compile every kernel of an operation on all cores and link them into one library; a failure is a row of the table."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FLAGS = (
    "-O3", "-std=c++17", "-gencode", "arch=compute_90,code=sm_90", "--expt-relaxed-constexpr", "-Xcompiler", "-fPIC",
    "-Xptxas", "-v",
)  # fmt: skip
TIMEOUT_S = 300


def compile_one(unit: Path, folder: Path, objects: Path) -> tuple[str, str, float, int, str, str]:
    """Return (kernel, status, seconds, spilled bytes, digest of the object, first error) of one unit."""
    target = objects / f"{unit.stem}.o"
    begin = time.monotonic()
    command = [
        "nvcc",
        *FLAGS,
        "-I",
        str(folder / "include"),
        "-I",
        str(folder / "src"),
        "-c",
        str(unit),
        "-o",
        str(target),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return unit.stem, "compile_timeout", TIMEOUT_S, 0, "", ""
    seconds = time.monotonic() - begin
    log = done.stdout + done.stderr
    if done.returncode:
        error = next((line for line in log.splitlines() if "error" in line), "no message")
        return unit.stem, "compile_error", seconds, 0, "", error.replace(",", ";")[:300]
    spilled = sum(map(int, re.findall(r"(\d+) bytes spill stores", log)))
    return unit.stem, "ok", seconds, spilled, hashlib.sha256(target.read_bytes()).hexdigest()[:16], ""


def main() -> None:
    """Compile, link, and write ``OPERATION.build.csv`` beside the library."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", required=True, type=Path, help="what prepare.py wrote")
    parser.add_argument("--operation", required=True)
    parser.add_argument("--limit", type=int, default=0, help="compile this many kernels only")
    parser.add_argument("--only", default="", help="compile kernels that this pattern is found in")
    parser.add_argument("--output", required=True, type=Path)
    args = parser.parse_args()

    listing = (args.folder / f"src/library_{args.operation}.cu").read_text()
    names = re.findall(r"case \d+: return tilewright_launcher_(\w+)\(\)", listing)
    names = [name for name in names if re.search(args.only, name)]
    names = names[:: max(1, len(names) // args.limit)] if args.limit else names
    args.output.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = list(pool.map(lambda name: compile_one(args.folder / f"src/{name}.cu", args.folder, args.output), names))
    table = "kernel,status,seconds,spilled_bytes,object_sha256,error\n"
    table += "".join(",".join(str(round(f, 2) if isinstance(f, float) else f) for f in row) + "\n" for row in rows)
    (args.output / f"{args.operation}.build.csv").write_text(table)
    built = [row[0] for row in rows if row[1] == "ok"]
    text = '#include "tilewright/launcher.h"\nextern "C" {\n'
    text += "".join(f"tilewright::Launcher const *tilewright_launcher_{name}();\n" for name in built)
    text += f"int tilewright_launcher_count() {{ return {len(built)}; }}\n"
    text += "tilewright::Launcher const *tilewright_launcher(int index) {\n    switch (index) {\n"
    text += "".join(f"        case {i}: return tilewright_launcher_{name}();\n" for i, name in enumerate(built))
    text += "        default: return nullptr;\n    }\n}\n}\n"
    unit = args.output / f"library_{args.operation}.cu"
    unit.write_text(text)
    objects = [str(args.output / f"{name}.o") for name in built]
    library = args.output / f"{args.operation}.so"
    subprocess.run(
        ["nvcc", *FLAGS[:-2], "-I", str(args.folder / "include"), "-shared", str(unit), *objects, "-o", str(library)],
        check=True,
    )
    print(
        f"{args.operation}: {len(built)} of {len(names)} kernels built in {time.monotonic() - begin:.0f} s, "
        f"{sum(row[2] for row in rows):.0f} compiler seconds, library {library.stat().st_size / 2**20:.1f} MiB"
    )
    for row in rows:
        if row[1] != "ok":
            print("  ", *row, file=sys.stderr)


if __name__ == "__main__":
    main()
