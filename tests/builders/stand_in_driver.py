"""A program in the place of MIOpenDriver: it prints the lines that MIOpen's sources document, faults included."""

import json
import sys

PROGRAM = """#!{python}
import json, os, signal, sys, time
arguments, plan = sys.argv[1:], json.loads({plan!r})
if arguments == ["--version"]:
    print(plan["version"])
    sys.exit(0)
solver, db = os.environ["MIOPEN_DEBUG_FIND_ONLY_SOLVER"], os.environ["MIOPEN_USER_DB_PATH"]
with open(plan["log"], "a") as log:
    seen = {{name: value for name, value in os.environ.items() if name.startswith("MIOPEN_")}}
    log.write(json.dumps({{"arguments": arguments, "environment": seen, "files": sorted(os.listdir(db))}}) + "\\n")
open(os.path.join(db, "gfx90a68.HIP.3_4_0_x.ufdb.txt"), "w").write("a record of one solver\\n")
print("MIOpenDriver", *arguments)
name = {{"1": "Forward", "2": "Backward Data", "4": "Backward Weights"}}[arguments[arguments.index("-F") + 1]]
fault = plan["faults"].get(solver, "")
if fault == "crash":
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGSEGV)
if fault == "hang":
    time.sleep(600)
if fault == "not applicable":
    print("RunForwardGPU() FAILED, rc = 0x7")
    sys.exit(7)
ran = "GemmFwdRest" if fault == "another" else solver
print(f"MIOpen {{name}} Conv. Algorithm: 1, Solution: 26/{{ran}}")
milliseconds = "nan" if fault == "no number" else f"{{plan['times'].get(solver, 1.0):f}}"
if fault != "silent":
    print(f"GPU Kernel Time {{name}} Conv. Elapsed: {{milliseconds}} ms (average)")
print("stats: name, n, c, ho, wo, x, y, k, flopCnt, bytesRead, bytesWritten, GFLOPs, GB/s, timeMs")
if fault == "wrong":
    print("Forward Convolution FAILED: 0.2138 > 0.0082")
    sys.exit(1)
print(f"{{name}} Convolution Verifies OK on GPU reference (0.0 < 1.5e-06)")
"""


def write_driver(folder, times=None, faults=None, version="MIOpen (version: 3.4.0)"):
    """Write the program; return its path and a function that gives what its runs saw.

    ``times``: milliseconds by solver, 1 for others; ``faults``: what goes wrong by solver.
    """
    path, log = folder / "MIOpenDriver", folder / "runs.jsonl"
    plan = {"version": version, "log": str(log), "times": times or {}, "faults": faults or {}}
    path.write_text(PROGRAM.format(python=sys.executable, plan=json.dumps(plan)))
    path.chmod(0o755)
    return path, lambda: [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
