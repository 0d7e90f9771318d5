"""``python -m amdgpu_emulator``: run a kernel of a code object, or a HIP program, on the emulated GPU."""

import sys

from amdgpu_emulator.command import main

sys.exit(main(sys.argv[1:]))
