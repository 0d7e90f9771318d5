"""Make config/recorded/gfx942_miopen from MIOpen's find-db of an MI300X (its SOURCE.md says where that is from).

``tileseer import find-db`` reads a database of your own; here the origin is added, and what is refused is counted only.
"""

import argparse
from pathlib import Path

from tileseer.core.errors import reports_user_errors
from tileseer.data.provenance import Taken
from tileseer.libraries.miopen import recording

ARCH, DEVICE = "gfx942_miopen", "gfx942_mi300x"
SOURCE = (
    "ROCm/MIOpen#3343, src/kernels/gfx942130.HIP.fdb.txt.bz2, from the fork shahamed/MIOpen, commit "
    "6c8809dea13054c1523f8c8e09a4e3a7e4bdc48c, MIT licence"
)
TAKEN = Taken(library="MIOpen 3.3.0, merged as ROCm/MIOpen#3343", date="2024-11-03 or before")


@reports_user_errors
def main() -> int:
    """Write the recording; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("database", type=Path, help="gfx942130.HIP.fdb.txt.bz2")
    parser.add_argument("--output", required=True, type=Path, help="new folder")
    args = parser.parse_args()
    found = recording.read_find_dbs([args.database])
    refused = ", ".join(f"{count:,}: {reason}" for reason, count in found.reasons().items())
    # Their lines would be ten times as large as the recording.
    found.refused.clear()
    told = {
        "source": SOURCE,
        "file": recording.digests([args.database]),
        "left_out": f"54,455 lines of layers that others keep to judge models; refused here {refused}",
    }
    recording.write_solver_recording(args.output, found, ARCH, DEVICE, told, TAKEN)
    problems = found.times["problem"].nunique()
    print(f"{args.output}: {len(found.times):,} times of {problems:,} problems; refused {refused}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
