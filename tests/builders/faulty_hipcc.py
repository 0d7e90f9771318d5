"""fake_hipcc with a fault: the file ``trouble`` beside it says which (JSON), and in which calls.

``{"how": "crash", "call": 3}`` is for the third call only, ``{"how": "crash", "kernel": NAME}`` for every one that
compiles that kernel. ``seed`` decides where an output is damaged. The file ``hit`` has a dot for each fault.
"""

import json
import os
import random
import re
import signal
import sys
import time
from pathlib import Path

import fake_hipcc

HERE = Path(sys.argv[0]).parent
SIGNALS = {"crash": signal.SIGSEGV, "kill -9": signal.SIGKILL}


def trouble(arguments: list[str]) -> dict:
    """Return what is to go wrong in this call, or nothing."""
    try:
        told = json.loads((HERE / "trouble").read_text())
    except FileNotFoundError:
        return {}
    if arguments == ["--version"]:
        return {}
    if "call" in told:
        with (HERE / "calls").open("ab") as calls:
            calls.write(b".")
            calls.flush()
            return told if os.fstat(calls.fileno()).st_size == told["call"] else {}
    names = re.findall(r'#include "(.*)\.hpp"', Path("unit.cpp").read_text())
    return told if told["kernel"] in names else {}


def main(arguments: list[str]) -> int:
    told = trouble(arguments)
    how = told.get("how", "")
    if how:
        with (HERE / "hit").open("a") as hits:
            hits.write(".")
    if how == "hang":
        time.sleep(3600)
    if how == "no memory":
        print("LLVM ERROR: out of memory")
        return 1
    if how == "nothing":
        return 0
    status = fake_hipcc.main(arguments)
    if not how:
        return status
    output = Path(arguments[arguments.index("-o") + 1])
    content = output.read_bytes() if output.exists() else b""
    at = random.Random(told["seed"]).randrange(max(1, len(content)))
    if how in SIGNALS:
        output.write_bytes(content[:at])
        os.kill(os.getpid(), SIGNALS[how])
    damage = {
        "cut": content[:at], "foreign": b"nonsense\n" * 40,
        "another kernel": content.replace(b"probe_", b"prebo_"),
    }  # fmt: skip
    output.write_bytes(damage[how])
    return 0
