"""What the jobs that measure share: settings, device, journal."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import pyarrow as pa

from tileseer.conv.operation import Operation
from tileseer.core.stage import Settings
from tileseer.devices import registry
from tileseer.gpu import hardware as products
from tileseer.settings.benchmark import BenchmarkSettings, LockSettings


@dataclass(frozen=True)
class Session:
    """One job that measures."""

    arch: str
    operation: Operation
    settings: BenchmarkSettings
    locking: LockSettings
    source: registry.Source
    journal: Path

    @classmethod
    def of(
        cls,
        arch: str,
        operation: str,
        settings: Settings,
        hardware: Path,
        product: str,
        coefficients: Path,
        journal: Path,
        driver: Path | None,
    ) -> Self:
        """Session of a script's options."""
        asked = BenchmarkSettings.of(settings, "benchmark")
        source = registry.Source(
            settings=asked,
            hardware=products.get(hardware, product),
            coefficients=coefficients,
            driver=driver,
            operation=operation,
            details=journal.with_suffix(".details.jsonl"),
        )
        locking = LockSettings.of(settings, "lock")
        return cls(arch, Operation.parse(operation), asked, locking, source, journal)

    def source_of(self, tables: list[pa.Table], modules: list[Path]) -> registry.Source:
        """Source of the device for the kernels of some build tables and their modules, one a table."""
        return replace(self.source, modules=registry.modules_of(tables, modules))
