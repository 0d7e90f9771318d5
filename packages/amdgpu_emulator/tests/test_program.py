"""A program in another process whose launches are executed here; a script plays one that is linked to a runtime."""

import subprocess
import sys
from pathlib import Path

SAXPY = Path(__file__).with_name("saxpy.co")
PROGRAM = """
import os, socket, struct, sys
import numpy as np

stream = socket.socket(fileno=int(os.environ["AMDGPU_EMULATOR"])).makefile("rwb")
number = struct.Struct("<q").pack

def text(content):
    return number(len(content)) + content

def ask(*parts):
    content = b"".join(parts)
    stream.write(number(len(content)) + content)
    stream.flush()
    answer = stream.read(*struct.unpack("<q", stream.read(8)))
    return struct.unpack_from("<q", answer)[0], answer[8:]

def run(size):
    values = [number(1 << 20), number(1 << 21), struct.pack("<f", 3), struct.pack("<I", size)]
    launch, _ = ask(text(b"launch"), *map(number, (2, 1, 1, 64, 1, 1, 0)), *map(text, values))
    memory = [number(1 << 20), text(y.tobytes()), number(1 << 21), text(x.tobytes())]
    return ask(text(b"run"), number(launch), number(2), *memory)

count, sizes = ask(text(b"kernel"), text(b"saxpy"), number(7), text(open(sys.argv[1], "rb").read()))
assert struct.unpack(f"<{count}q", sizes) == (8, 8, 4, 4)
y, x = np.ones(100, np.float32), np.arange(100, dtype=np.float32)
instructions, after = run(100)
# A fault and an unknown kernel reach the program as text.
for failed, said in run(128), ask(text(b"kernel"), text(b"daxpy"), number(7), text(b"")):
    print(failed, said[8:].decode())
assert instructions > 10 and struct.unpack_from("<q", after)[0] == y.nbytes
assert (np.frombuffer(after[8 : 8 + y.nbytes], np.float32) == 3 * x + 1).all()
sys.exit(7)
"""


def emulated(*words):
    command = [sys.executable, "-m", "amdgpu_emulator", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_launches_of_a_program_are_executed(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    run = emulated(sys.executable, tmp_path / "program.py", SAXPY)
    assert (run.returncode, run.stderr) == (7, "")
    fault, unknown = run.stdout.splitlines()
    assert fault.startswith("-1 ") and "offset 400 of allocated memory" in fault
    assert "the code object has no kernel daxpy" in unknown


def test_a_program_that_cannot_be_started_is_named(tmp_path):
    run = emulated(tmp_path / "missing")
    assert run.returncode == 1 and run.stderr.strip() == f"{tmp_path}/missing: cannot be run: No such file or directory"
    assert "usage" in emulated().stderr
