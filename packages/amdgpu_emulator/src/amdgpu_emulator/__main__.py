"""``python -m amdgpu_emulator PROGRAM [ARGUMENT ...]``: run a HIP program on the emulated GPU."""

import sys

from amdgpu_emulator.program import run_program

if len(sys.argv) < 2:
    sys.exit("usage: python -m amdgpu_emulator PROGRAM [ARGUMENT ...]")
try:
    sys.exit(run_program(sys.argv[1:]))
except OSError as error:
    sys.exit(f"{sys.argv[1]}: cannot be run: {error.strerror}")
