"""What the jobs that measure share: settings, device, journal."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from tileseer.conv.operation import Operation
from tileseer.core.stage import Settings
from tileseer.devices import registry
from tileseer.gpu import hardware as products
from tileseer.settings.benchmark import BenchmarkSettings, LockSettings


class Session:
    """One job that measures, from the options of its script."""

    def __init__(
        self, arch: str, operation: str, settings: Settings, hardware: Path, product: str, coefficients: Path,
        journal: Path, driver: Path | None,
    ) -> None:  # fmt: skip
        self.arch, self.operation, self.journal = arch, Operation.parse(operation), journal
        self.settings = BenchmarkSettings.of(settings, "benchmark")
        self.locking = LockSettings.of(settings, "lock")
        self._source = registry.Source(
            settings=self.settings,
            hardware=products.get(hardware, product),
            coefficients=coefficients,
            driver=driver,
            operation=operation,
            details=journal.with_suffix(".details.jsonl"),
        )

    def source_of(self, tables: list[pa.Table], modules: list[Path]) -> registry.Source:
        """Source of the device for the kernels of some build tables and their modules, one a table."""
        return replace(self._source, modules=registry.modules_of(tables, modules))
