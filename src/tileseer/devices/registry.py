"""The device that the settings ask for. A new one is one function here and one word in ``settings/benchmark.py``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from tileseer.core import lock
from tileseer.core.errors import UserError
from tileseer.devices.base import Device
from tileseer.devices.gpu import GpuDevice, Row
from tileseer.devices.harness.details import Details
from tileseer.devices.harness.supervisor import Supervisor
from tileseer.devices.harness.telemetry import Board, boards
from tileseer.devices.recorded import RecordedDevice
from tileseer.devices.simulated import SimulatedDevice
from tileseer.families.coefficients import load_coefficients
from tileseer.gpu.hardware import Hardware
from tileseer.settings.benchmark import BenchmarkSettings, LockSettings

GPU_BACKENDS = ("cuda", "hip")
RECORDINGS = "config/recordings"
"""Folder of the tables that the recorded device replays: PRODUCT/OPERATION.parquet."""


@dataclass(frozen=True)
class Source:
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
    operation: str = ""
    """Operation that is measured, for the file name of a recording."""
    details: Path | None = None
    """Details log of a real GPU."""


@contextmanager
def claimed(source: Source, locking: LockSettings) -> Iterator[tuple[Device, float]]:
    """Hold the lock of a device; yield the device and the seconds that were waited for it.

    On a machine with several GPUs it is the first one that is free.
    """
    folder, limit = lock.lock_folder(locking.folder), locking.timeout_s
    device = source.settings.device
    found = {f"gpu-{board.uuid}": board for board in boards(device)} if device in GPU_BACKENDS else {}
    # Without the vendor's library there is one GPU, as far as we can know.
    names = list(found) or [f"{device}-{source.hardware.name}"]
    with lock.any_of(names, folder, limit) as (name, waited), _MAKERS[device](source, found.get(name)) as made:
        yield made, waited


@contextmanager
def _simulated(source: Source, board: Board | None) -> Iterator[Device]:
    s = source.settings
    coefficients, launches = load_coefficients(source.coefficients), s.parameters.simulated_launches
    yield SimulatedDevice(source.hardware, coefficients, s.seed, launches)


@contextmanager
def _recorded(source: Source, board: Board | None) -> Iterator[Device]:
    path = Path(RECORDINGS, source.hardware.name, f"{source.operation}.parquet")
    if not path.is_file():
        raise UserError(f"{path}: there is no recording of {source.operation} on {source.hardware.name}")
    yield RecordedDevice(path, source.hardware.name)


@contextmanager
def _gpu(source: Source, board: Board | None) -> Iterator[Device]:
    backend, timing = source.settings.device, source.settings.parameters
    if source.driver is None:
        raise UserError(
            f"benchmark.device is {backend}: give a measuring driver and the built kernels, --driver and --modules"
        )
    driver = str(source.driver.resolve())
    with Supervisor(driver, board.environment if board else None) as supervisor:
        yield GpuDevice(
            name=source.hardware.name,
            kind="measured",
            driver=driver,
            module_of=module_finder(source.modules),
            supervisor=supervisor,
            telemetry=board or Board(),
            timing=timing,
            seed=source.settings.seed,
            details=Details(source.details),
        )


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


_MAKERS: dict[str, Callable[[Source, Board | None], AbstractContextManager[Device]]] = {
    "simulated": _simulated,
    "recorded": _recorded,
    "cuda": _gpu,
    "hip": _gpu,
}
