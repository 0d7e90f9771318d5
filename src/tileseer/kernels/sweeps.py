"""The form of the rule-set files of each family whose kernels are made here."""

from pathlib import Path

from tileseer.kernels.ck_tile.sweep import CkTileSweep
from tileseer.kernels.cutlass.sweep import CutlassSweep
from tileseer.kernels.enumeration import Sweep
from tileseer.kernels.registry import entry, of_arch

SWEEPS: dict[str, type[Sweep]] = {"ck_tile": CkTileSweep, "cutlass": CutlassSweep}


def read_sweep(path: Path, arch: str) -> Sweep:
    """A rule-set file for the kernels of an arch."""
    return entry(SWEEPS, of_arch(arch)).read_file(path)
