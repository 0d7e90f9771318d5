"""The device that the settings ask for. A new one is one case here and one word in ``config/benchmark.py``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from tileseer.config.benchmark import BenchmarkSettings, LockSettings
from tileseer.core.errors import UserError
from tileseer.core.locks import device_locks, hold_first_free, lock_folder
from tileseer.costmodel.coefficients import load_coefficients
from tileseer.gpus.hardware import Hardware
from tileseer.measure.device import Device
from tileseer.measure.gpu_device import GpuDevice, Row
from tileseer.measure.harness.details import Details
from tileseer.measure.harness.supervisor import Supervisor
from tileseer.measure.harness.telemetry import Board, boards
from tileseer.measure.simulated_device import SimulatedDevice

GPU_BACKENDS = ("cuda", "hip")


@dataclass(frozen=True)
class DeviceSource:
    """What a device is made from."""

    settings: BenchmarkSettings
    hardware: Hardware
    """Product that the device is, or stands for."""
    coefficients: Path
    """Of the simulated device."""
    driver: Path | None = None
    """Measuring driver, a library; a real GPU needs it."""
    modules: Mapping[str, Path] = field(default_factory=dict)
    """The library that each kernel is in, by the kernel's name; a real GPU needs it."""
    plans: str = ""
    """Library whose plans are the kernels, instead of modules: ``cudnn``, with a version that one alone."""
    details: Path | None = None
    """Details log of a real GPU."""


@contextmanager
def claimed(source: DeviceSource, locking: LockSettings) -> Iterator[tuple[Device, float]]:
    """Hold the lock of a device; yield the device and the seconds that were waited for it.

    On a machine with several GPUs it is the first one that is free.
    """
    device = source.settings.device
    by_lock = {f"gpu-{board.uuid}": board for board in boards(device)} if device in GPU_BACKENDS else {}
    # Without the vendor's library there is one GPU, as far as we can know.
    names = list(by_lock) or [f"{device}-{source.hardware.name}"]
    with ExitStack() as stack:
        locks = device_locks(names, lock_folder(locking.folder))
        name, waited = stack.enter_context(hold_first_free(locks, timeout_s=locking.timeout_s))
        yield _made(source, by_lock.get(name, Board()), stack), waited


def _made(source: DeviceSource, board: Board, stack: ExitStack) -> Device:
    """The device; ``stack`` ends what it needs while it is used."""
    settings, product = source.settings, source.hardware.name
    if settings.device == "simulated":
        timing = settings.parameters
        coefficients = load_coefficients(source.coefficients, timing.simulated_deviation)
        return SimulatedDevice(source.hardware, coefficients, settings.seed, timing.simulated_launches)
    if source.driver is None:
        raise UserError(
            f"benchmark.device is {settings.device}: give a measuring driver and the built kernels, "
            "--driver and --modules"
        )
    driver = str(source.driver.resolve())
    supervisor = stack.enter_context(Supervisor(driver, board.environment, plans=source.plans))
    module_of = (lambda row: source.plans) if source.plans else module_finder(source.modules)
    return GpuDevice(
        product, "measured", driver, module_of, supervisor, board, settings.parameters,
        settings.seed, Details(source.details), source.hardware.arch,
    )  # fmt: skip


def modules_of(builds: Sequence[pa.Table], modules: Sequence[Path]) -> dict[str, Path]:
    """Library of each built kernel: ``modules`` has one for each build table, or none at all."""
    if not modules:
        return {}
    if len(builds) != len(modules):
        raise UserError(f"--modules: {len(modules)} libraries for {len(builds)} build tables; give one for each")
    tables = zip(builds, modules, strict=True)
    return {str(name): module for build, module in tables for name in build["kernel"].to_pylist()}


def module_finder(modules: Mapping[str, Path]) -> Callable[[Row], str]:
    """Function from a candidate to the library that it is in."""

    def module_of(candidate: Row) -> str:
        path = modules.get(str(candidate["kernel"]))
        if path is None or not path.is_file():
            raise UserError(f"there is no library of the kernel {candidate['kernel']} ({path}); build it again")
        return str(path.resolve())

    return module_of
