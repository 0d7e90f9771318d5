"""Settings of the benchmark stage: the device, its lock, and how it is measured."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tileseer.core.strict_tables import expected
from tileseer.facts.names import Product
from tileseer.facts.section import AbsolutePath, Section

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
"""Units of time."""
Budget = Annotated[
    str,
    StringConstraints(pattern=r"^(\d*[1-9]\d*(\.\d+)?|0\.\d*[1-9]\d*)[smh]$", max_length=10),
    expected("a number with s, m or h, such as 90s, 30m or 1.5h"),
]


@dataclass(frozen=True)
class Timing:
    """How pairs are timed (method: docs/internals/measuring.md). The defaults are the preset ``standard``."""

    cache: Literal["cold", "warm"] = "cold"
    """``cold``: operands rotate through more memory than the last-level cache holds. ``warm``: always the same."""
    min_time_ms: float = 2.0
    """Smallest total device time of a pair's samples."""
    min_samples: int = 8
    """Smallest number of samples per pair."""
    max_samples: int = 200
    """Largest number of samples per pair."""
    max_noise: float = 0.005
    """Relative standard error of the median at which sampling may end."""
    budget_ms: float = 500.0
    """Longest wall time of warm-up and samples of a pair."""
    sample_ms: float = 0.2
    """A sample repeats launches until it is about this long."""
    warmup_change: float = 0.01
    """Warm-up ends when two windows of samples differ by less than this share."""
    settle_ms: float = 200.0
    """Longest wall time for which a pair waits until the clock has recovered; 0: no wait."""
    verify: Literal["pair", "class"] = "class"
    """Which pairs are compared with the reference: all, or each kernel once per class of problems."""
    verify_millions: int = 0
    """Largest number of multiply-adds of a reference, in millions: for a larger problem one element in several is
    compared, and all must be finite. 0: no limit."""
    hopeless_factor: float = 5.0
    """A kernel this many times slower than the problem's best so far gets one short sample; 0: never."""
    pairs_again: int = 32
    """Random pairs per chunk that another worker measures once more, to show how far two runs differ. 0: none."""
    contenders: int = 3
    """Largest number of the fastest kernels of a problem that another worker measures again in turns (A B B A), if the
    second is ``close``. 0 or 1: none."""
    close: float = 0.02
    """How much slower than the chunk's best kernel of a problem a contender may be, as a share."""
    sentinel_every: int = 64
    """Pairs between two measurements of the sentinel pair; also the largest batch between two journal writes."""
    drift_limit: float = 0.03
    """Relative change of the sentinel's time that counts as drift."""
    recovery_s: float = 2.0
    """Pause before a batch is measured again after drift, throttling or contention."""
    emulated_few: bool = False
    """Whether the emulated device executes each instance of a kernel with grids of many tiles alone, if it can."""


TIMINGS = {
    "quick": Timing(
        min_time_ms=1.0, min_samples=3, max_samples=100, budget_ms=100.0, sample_ms=0.1, verify_millions=2000,
        hopeless_factor=2.0, sentinel_every=256, emulated_few=True,
    ),
    "standard": Timing(),
    "thorough": Timing(
        min_time_ms=10.0, min_samples=16, max_samples=1000, max_noise=0.002, budget_ms=2000.0, settle_ms=500.0,
        verify="pair", hopeless_factor=20.0, pairs_again=128, contenders=5, close=0.04, sentinel_every=32,
        drift_limit=0.02,
    ),
}  # fmt: skip
"""The presets of ``benchmark.timing``."""


class BenchmarkSettings(Section):
    """How pairs are measured."""

    device: Literal["simulated", "emulated", "cuda", "hip"] = "simulated"
    """Where times come from. ``simulated`` needs no GPU; everything made from it is labelled so. ``cuda`` and ``hip``
    measure on a GPU of this machine. ``emulated`` has no times: it executes compiled kernels of AMD GPUs and writes
    ``results/verdicts/ARCH.tsv``. An arch in ``replays`` has its times from a recording."""
    products: dict[str, Product] = Field(
        {
            "gfx90a": "gfx90a_mi250x_gcd",
            "gfx90a_miopen": "gfx90a_mi210",
            "gfx942": "gfx942_mi300x",
            "gfx942_miopen": "gfx942_mi300x",
            "gfx950": "gfx950_mi355x",
            "gfx950_mi355x": "gfx950_mi355x",
            "gfx1100": "gfx1100_7900xtx",
            "gfx1201": "gfx1201_9070xt",
            "sm_90": "sm_90_h200",
            "sm_90_cudnn": "sm_90_h200",
        }
    )
    """The GPU product of ``config/hardware.yaml`` that represents each arch."""
    seed: int = Field(1, ge=0, le=2**31 - 1)
    """Seed of the simulated device's noise and of randomly chosen pairs; on a GPU, of the operands and of the order of
    measuring."""
    budget: Budget | None = None
    """Time on the device for one operation, such as 2h, shared evenly by its chunks, with what earlier runs spent:
    problem after problem is measured, in random order, until it is spent; the others are left out. Without it, all
    are measured."""
    timing: Literal["quick", "standard", "thorough"] = "standard"
    """How long each pair is timed on a GPU, and how strictly it is checked."""

    @property
    def parameters(self) -> Timing:
        """Return the parameters of the preset."""
        return TIMINGS[self.timing]

    @property
    def budget_s(self) -> float | None:
        """The budget in seconds."""
        return None if self.budget is None else float(self.budget[:-1]) * SECONDS[self.budget[-1]]


class LockSettings(Section):
    """The advisory lock that keeps two benchmarks off one GPU."""

    folder: AbsolutePath | None = None
    """Folder shared by all users of the machine; by default in /var/lock, or in /tmp if not all can write to it."""
    timeout_s: float = Field(86400.0, gt=0, strict=False)
    """Longest wait for the GPU."""
