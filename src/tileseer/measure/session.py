"""One job that measures: the options of its script, and the device that they ask for.

A new device is one case here and one word in ``facts/benchmark.py``.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from tileseer.build.build import library_of
from tileseer.core.errors import UserError
from tileseer.core.locks import device_locks, hold_first_free, lock_folder
from tileseer.core.script import Settings
from tileseer.facts.benchmark import BenchmarkSettings, LockSettings
from tileseer.facts.hardware import Hardware, read_hardware
from tileseer.libraries.costs.coefficients import load_coefficients
from tileseer.libraries.registry import library_of_arch
from tileseer.measure.device import Device
from tileseer.measure.gpu_device import GpuDevice
from tileseer.measure.harness.supervisor import Supervisor
from tileseer.measure.harness.telemetry import VARIABLES, Board, boards
from tileseer.measure.simulated_device import SimulatedDevice
from tileseer.problems.operation import Operation


@dataclass(frozen=True)
class Session:
    """The options, and what the kernels come from."""

    arch: str
    operation: str
    options: Settings
    hardware_table: Path
    product: str
    """GPU product that the device is, or stands for."""
    coefficients: Path
    """Of the simulated device."""
    journal: Path | None
    """What is measured goes there; a real GPU has a details log beside it. Without it nothing is measured."""
    driver: Path | None = None
    """Measuring driver, a library; a real GPU needs it."""
    modules: Mapping[str, Path] = field(default_factory=dict)
    """The library that each kernel is in, by the kernel's name; a real GPU needs it."""
    plans: str = ""
    """Library whose plans are the kernels, instead of modules, by its name; with a version that one alone."""
    program: str = ""
    """The library's own program that times its kernels, where it has one (``Library.program``)."""

    @cached_property
    def settings(self) -> BenchmarkSettings:
        """Settings of the benchmark stage."""
        return BenchmarkSettings.of(self.options, "benchmark")

    @cached_property
    def hardware(self) -> Hardware:
        """The product's row of the table."""
        return read_hardware(self.hardware_table, self.product)

    @property
    def variant(self) -> str:
        """Direction of the operation."""
        return Operation.parse(self.operation).variant

    @property
    def lock_timeout_s(self) -> float:
        """How long to wait for the device, or the journal."""
        return LockSettings.of(self.options, "lock").timeout_s

    def with_kernels(self, built: pa.Table, module: Path | None) -> Session:
        """Return the session with the kernels of a build table, which are in the library ``module`` if there is one."""
        if plans := library_of(built):
            return replace(self, plans=plans)
        return replace(self, modules=dict.fromkeys(built["kernel"].to_pylist(), module) if module else {})

    def module_of(self, kernel: str) -> str:
        """Return the library that a kernel is in."""
        if self.plans:
            return self.plans
        path = self.modules.get(kernel)
        if path is None or not path.is_file():
            raise UserError(f"there is no library of the kernel {kernel} ({path}); build it again")
        return str(path.resolve())

    @contextmanager
    def hold_device(self) -> Iterator[tuple[Device, float]]:
        """Hold the device, which nobody else measures on then; yield it, and the seconds that were waited for it.

        On a machine with several GPUs it is the first one that is free.
        """
        device = self.settings.device
        by_lock = {f"gpu-{board.lock}": board for board in boards(device)} if device in VARIABLES else {}
        # Without the vendor's library there is one GPU, as far as we can know.
        names = list(by_lock) or [f"{device}-{self.hardware.name}"]
        locks = device_locks(names, lock_folder(LockSettings.of(self.options, "lock").folder))
        with ExitStack() as stack:
            name, handle, waited_s = stack.enter_context(hold_first_free(locks, timeout_s=self.lock_timeout_s))
            yield self._device(by_lock.get(name, Board()), handle, stack), waited_s

    def _device(self, board: Board, lock: int, stack: ExitStack) -> Device:
        """Return the device; ``stack`` ends what it needs while it is used, such as a worker, which holds the lock."""
        settings = self.settings
        if settings.device == "simulated":
            coefficients = load_coefficients(self.coefficients)
            return SimulatedDevice(self.hardware, coefficients, settings.seed)
        if self.program:
            timed_by = pkgutil.resolve_name(library_of_arch(self.arch).device)
            folder = self.journal and self.journal.parent
            device: Device = timed_by(self.hardware.name, self.program, board.environment, lock, folder)
            return device
        if self.driver is None:
            raise UserError(
                f"benchmark.device is {settings.device}: give a measuring driver and the built kernels, "
                "--driver and --module"
            )
        driver = str(self.driver.resolve())
        supervisor = stack.enter_context(Supervisor(driver, board.environment, plans=self.plans, lock=lock))
        return GpuDevice(self, supervisor, board)
