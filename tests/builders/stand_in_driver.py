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
flags = dict(zip(arguments[1::2], arguments[2::2]))
numbers = lambda letters, between: between.join(flags["-" + one] for one in letters)
def size(image, extent, pad, step):
    return str((int(flags[image]) + 2 * int(flags[pad]) - int(flags[extent])) // int(flags[step]) + 1)
layout = flags.get("--in_layout", "NCHW")
key = "-".join([
    numbers("cHW", "-"), numbers("yx", "x"), flags["-k"], size("-H", "-y", "-p", "-u"), size("-W", "-x", "-q", "-v"),
    flags["-n"], numbers("pq", "x"), numbers("uv", "x"), numbers("lj", "x"), "0",
    layout if layout == "NCHW" else "-".join([layout] * 3), "FP32-F",
])
record = f"{{key}}={{solver}}:0.5,{{plan['workspace']}},miopenConvolutionFwdAlgoDirect\\n"
open(os.path.join(db, f"gfx90a68.HIP.{{plan['build']}}.ufdb.txt"), "w").write(record)
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


def write_driver(folder, times=None, faults=None, version="MIOpen (version: 3.4.0)", build="3_4_0_x"):
    """Write the program; return its path and a function that gives what its runs saw.

    ``times``: milliseconds by solver, 1 for others; ``faults``: what goes wrong by solver; ``build``: of the file that
    has its records, with a workspace of 512 bytes.
    """
    path, log = folder / "MIOpenDriver", folder / "runs.jsonl"
    plan = {"version": version, "log": str(log), "times": times or {}, "faults": faults or {}}
    plan |= {"build": build, "workspace": 512}
    path.write_text(PROGRAM.format(python=sys.executable, plan=json.dumps(plan)))
    path.chmod(0o755)
    return path, lambda: [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
