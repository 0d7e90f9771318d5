"""What the reference has published of its own models: to compare orders of magnitude, not results."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """Efficiency of the reference's picks in percent, as its authors give it."""

    mean: float
    median: float
    p10: float


SOURCE = "pull request 6327 of the reference: an MI355X (gfx950), bf16, its own kernels and problems"
EFFICIENCY = {
    "forward_bf16": Published(93.05, 96.8, 79.9),
    "bwd_data_bf16": Published(93.8, 96.5, 82.9),
    "bwd_weight_bf16": Published(96.1, 99.2, 89.4),
}
