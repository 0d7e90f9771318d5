"""The words of a request for a named rule set. Free of heavy imports: the command reads them before all else."""

from __future__ import annotations

from tileseer.conv.operation import VARIANTS

TABLE_SETS = ("default", "full", "full-tests", "tiny")
"""Sets that are tables of ``config/rule_sets``."""
BUILDER_SETS = ("profiler", "tests")
"""Sets that are read from a Composable Kernel checkout."""
RULE_SETS = (*TABLE_SETS, *BUILDER_SETS)
NDIMS = (1, 2, 3)
DEPTHWISE = "forward_depthwise"
"""Asks for the depthwise kernels of a set alone; ``forward`` has them too, but not in ``BUILDER_SETS``."""
REQUESTED_VARIANTS = (*VARIANTS, DEPTHWISE)
