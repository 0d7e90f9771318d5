"""Settings of the benchmark stage: the device, its lock, and how it is measured."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tilewright.settings.section import RelativePath, Section

Product = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+$")]


class BenchmarkSettings(Section):
    """How pairs are measured."""

    device: Literal["simulated"] = "simulated"
    """Where times come from. ``simulated`` needs no GPU; everything made from it is labelled so."""
    products: dict[str, Product] = Field(
        {
            "gfx90a": "gfx90a_mi250x_gcd",
            "gfx942": "gfx942_mi300x",
            "gfx950": "gfx950_mi355x",
            "gfx1100": "gfx1100_7900xtx",
            "gfx1201": "gfx1201_9070xt",
        }
    )
    """The GPU product of ``config/hardware.yaml`` that stands for each arch."""
    seed: int = Field(1, ge=0, le=2**31 - 1)
    """Seed of the simulated device's noise."""
    repeats: int = Field(10, ge=1, le=1000)
    """Timed launches a pair."""
    batch_pairs: int = Field(65536, ge=1)
    """Pairs measured between two writes to the journal: what an interruption can cost."""
    trace: RelativePath | None = None
    """A file to which the device appends when each use of it began and ended (for finding overlaps)."""


class LockSettings(Section):
    """The advisory lock that keeps two benchmarks off one GPU."""

    folder: str | None = None
    """Folder shared by all users of the machine; by default /var/lock, or the system's temporary folder."""
    timeout_s: float = Field(86400.0, gt=0, strict=False)
    """How long to wait for the GPU before giving up."""
