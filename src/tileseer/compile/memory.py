"""What a compile job may take of the machine's memory."""

from __future__ import annotations

from tileseer.settings.compile import CompileSettings

PYTHON_MIB = 512
"""The job itself: its tables and the workflow's modules."""


def memory_mib(settings: CompileSettings) -> int:
    """Return what a job declares to the scheduler, MiB: the limit of its one compiler run, and Python beside it."""
    return settings.memory_mib + PYTHON_MIB if settings.toolchain == "hipcc" else PYTHON_MIB
