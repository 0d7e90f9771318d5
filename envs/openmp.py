"""Make sure that LightGBM finds an OpenMP runtime; run by setup.sh with the environment's own Python.

LightGBM's wheel links libgomp.so.1 and does not carry it; a bare Debian has none. scikit-learn's wheel carries a
copy under a name of its own. Where the system has no libgomp, this takes that copy, gives it the usual name back,
and has the environment load it at start, so that nothing has to be installed on the system.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

NAME = b"libgomp.so.1"


def lightgbm_loads() -> bool:
    """Try in a process of its own: a failed import leaves traces in this one."""
    return subprocess.run([sys.executable, "-c", "import lightgbm"], capture_output=True).returncode == 0


def main() -> None:
    """Leave an environment in which ``import lightgbm`` works, or stop with what to install."""
    if lightgbm_loads():
        return
    site = Path(sysconfig.get_path("purelib"))
    carried = sorted(site.glob("scikit_learn.libs/libgomp-*.so*"))
    if carried:
        copy = site / "tileseer_openmp" / NAME.decode()
        copy.parent.mkdir(exist_ok=True)
        # The name inside the file is longer than the usual one, so it can be replaced in place.
        content = re.sub(
            rb"libgomp-[0-9a-f]+\.so[0-9.]*", lambda m: NAME.ljust(len(m[0]), b"\0"), carried[0].read_bytes()
        )
        copy.write_bytes(content)
        ctypes.CDLL(str(copy))
        preload = f"import ctypes; ctypes.CDLL({str(copy)!r}, ctypes.RTLD_GLOBAL)\n"
        (site / "tileseer_openmp.pth").write_text(preload)
        if lightgbm_loads():
            print("using the OpenMP runtime that scikit-learn carries: the system has none")
            return
    sys.exit(
        "error: LightGBM does not load; install the OpenMP runtime (on Debian and Ubuntu: apt-get install libgomp1)"
    )


if __name__ == "__main__":
    main()
