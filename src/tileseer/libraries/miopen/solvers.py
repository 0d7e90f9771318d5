"""MIOpen's convolution solvers (``solvers.csv``): number, algorithm, what a problem must be for each, and until when.

Names and numbers are MIOpen's own (its registry at 2d1fd997a6fc), which keeps them from release to release. A limit
is listed if every row of six published databases keeps it (config/recorded/gfx942_miopen/SOURCE.md) and the
solver's name or MIOpen's documentation says the same of it. MIOpen refuses more than these limits do. Newer releases
have more solvers: those are candidates by their names. They lack some: those were removed, or renamed, in April and May
2026 (ROCm/rocm-libraries 6491, 6633, 6859, 7637, and its registry at 00a55ad90573).
"""

import csv
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from tileseer.core.reading import read_utf8

Algorithm = Literal["direct", "winograd", "implicit_gemm", "gemm", "fft"]
Release = tuple[int, ...]
"""Numbers of a version of MIOpen, such as (3, 5, 2); empty where it is not known."""


@dataclass(frozen=True)
class Facts:
    """What is known of a solver."""

    number: int
    """``solution_id`` of MIOpen's immediate mode."""
    algorithm: Algorithm
    directions: str
    """Those of F, B and W of which MIOpen's databases have lines with this solver and algorithm."""
    filter: str = ""
    """Height x width, where there is only one."""
    stride: int = 0
    """Of both axes, where there is only one."""
    padded: bool = True
    grouped: bool = True
    dilated: bool = True
    """Whether it takes padding, groups, a dilation."""
    nchw: bool = True
    nhwc: bool = True
    """Whether it takes tensors of these layouts, 3D ones too."""
    narrow: bool = False
    """Whether it was reported to count in 32 bits, so that it faults or is silently wrong where a tensor has 2 GiB or
    more: ROCm/MIOpen 3076, ROCm/rocm-libraries 9568, 9768, 10020, 10043."""
    workspace: str = ""
    """The formula of its workspace (``workspace.FORMULAS``); empty if there is none."""
    last_release: Release = ()
    """That is sure to have it; empty for the newest."""


def _read_facts(text: str) -> dict[str, Facts]:
    found: dict[str, Facts] = {}
    for row in csv.DictReader(text.splitlines()):
        (algorithm,) = (one for one in get_args(Algorithm) if one == row["algorithm"])
        takes, layouts = row["takes"].split(), row["layouts"].split()
        found[row["solver"]] = Facts(
            int(row["number"]), algorithm, row["directions"], row["filter"], int(row["stride"] or 0),
            "padding" in takes, "groups" in takes, "dilation" in takes, "NCHW" in layouts, "NHWC" in layouts,
            row["offsets"] == "32 bits", row["workspace"], release_of(row["last_release"]),
        )  # fmt: skip
    return found


def release_of(text: str) -> Release:
    """Return the numbers of a version of MIOpen, such as 3_2_0_36bb7fd4a or ``MIOpen 3.3``; none if it has none."""
    match = re.search(r"(?<![0-9A-Za-z_.])[0-9]+(?:[._][0-9]+){1,2}(?![0-9A-Za-z])", text)
    return tuple(map(int, re.split("[._]", match[0]))) if match else ()


def in_words(release: Release) -> str:
    """Return a version as MIOpen writes it, 3.5.2; empty where it is not known."""
    return ".".join(map(str, release))


SOLVERS = _read_facts(read_utf8(Path(__file__).with_name("solvers.csv")))
"""By name."""
SOLVER_NAME = r"[A-Za-z][A-Za-z0-9_<>,-]{0,99}"
"""How solvers are called."""
FIRST_UNKNOWN, UNKNOWN_NUMBERS = 1024, 4096
"""Number of the first solver that the table lacks, and how many there are."""
_WORDS: tuple[tuple[str, Algorithm], ...] = (
    ("Wino", "winograd"),
    ("ImplicitGemm", "implicit_gemm"),
    ("Igemm", "implicit_gemm"),
    ("Gemm", "gemm"),
    ("fft", "fft"),
)
"""What a word in a name says of the algorithm."""


def facts_of(solver: str) -> Facts:
    """Return what is known of a solver; of one that the table lacks what its name says: nothing refuses it.

    Its number follows from its name, so that it is the same wherever it is met.
    """
    if solver in SOLVERS:
        return SOLVERS[solver]
    algorithm: Algorithm = next((algorithm for word, algorithm in _WORDS if word in solver), "direct")
    number = FIRST_UNKNOWN + zlib.crc32(solver.encode()) % UNKNOWN_NUMBERS
    return Facts(number, algorithm, "")


def is_gone(solver: str, release: Release) -> bool:
    """Return whether a solver may be missing from a release of MIOpen, though older databases name it."""
    last = facts_of(solver).last_release
    return bool(last) and release > last


_NAME_OF_DIRECTION = {"F": "Fwd", "B": "BwdData", "W": "BwdWeights"}
_ALGORITHMS = {"implicit_gemm": "ImplicitGEMM", "gemm": "GEMM", "fft": "FFT"}


def algorithm_prefix(direction: str) -> str:
    """Return how the algorithms of a direction begin."""
    return f"miopenConvolution{_NAME_OF_DIRECTION[direction]}Algo"


def algorithm_word(solver: str, direction: str) -> str | None:
    """Return what MIOpen writes for the algorithm of a solver in F, B or W; None if none of its lines has the two."""
    facts = facts_of(solver)
    if direction not in facts.directions:
        return None
    word = _ALGORITHMS.get(facts.algorithm, facts.algorithm.capitalize())
    return f"{algorithm_prefix(direction)}{word}"
