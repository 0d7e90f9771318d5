"""The kernels that a rule set gives for an arch: each family reads rule sets of its own form."""

from __future__ import annotations

from pathlib import Path

from tileseer import families
from tileseer.conv.operation import Operation
from tileseer.families.ck_tile import sweep
from tileseer.families.cutlass import rules as cutlass
from tileseer.families.gemm_kernel import GemmKernel
from tileseer.gpu.arch import ArchSpecs
from tileseer.settings.configs import ConfigsSettings


def enumerate_kernels(
    settings: ConfigsSettings, specs: ArchSpecs, arch: str, operation: Operation
) -> sweep.Enumeration[GemmKernel]:
    """Return the kernels of the settings' rule set, legal and refused ones, for one arch and operation."""
    path = Path(settings.rule_set)
    if families.of_arch(arch) is families.CUTLASS:
        return cutlass.enumerate_kernels(cutlass.load(path), specs, arch, operation, settings.ndims)
    return sweep.enumerate_kernels(sweep.load(path), specs, arch, operation, settings.ndims, settings.include_flagged)
