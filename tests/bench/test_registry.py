"""The settings decide on the device; a real GPU is claimed by its board."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pyarrow as pa
import pytest

from tileseer.core import lock
from tileseer.core.errors import UserError
from tileseer.devices import recorded, registry
from tileseer.devices.harness import telemetry
from tileseer.devices.harness.telemetry import Board, Reading
from tileseer.gpu import hardware
from tileseer.settings.benchmark import BenchmarkSettings, LockSettings

CONFIG = Path(__file__).parents[2] / "config"
GPU = hardware.get(CONFIG / "hardware.yaml", "gfx950_mi355x")


def source(libraries=(None, None), **settings):
    made = BenchmarkSettings.of({"benchmark": settings}, "benchmark")
    driver = Path(libraries[0]) if libraries[0] else None
    return registry.Source(made, GPU, CONFIG / "simulated_device.yaml", driver, operation="forward_bf16")


@pytest.fixture
def locking(tmp_path):
    return LockSettings(folder=str(tmp_path / "locks"), timeout_s=1.0)


def test_simulated_and_recorded_devices(locking, tmp_path, monkeypatch):
    with registry.claimed(source(), locking) as (device, _):
        assert (device.kind, device.name) == ("simulated", GPU.name)
    monkeypatch.chdir(tmp_path)
    absent = registry.claimed(source(device="recorded"), locking)
    with pytest.raises(UserError, match="no recording of forward_bf16 on gfx950_mi355x"), absent:
        pass
    folder = tmp_path / registry.RECORDINGS / GPU.name
    folder.mkdir(parents=True)
    rows = pd.DataFrame([("k", 1, "p", "ok", "", 1.0, 0.1, 2, 3)], columns=list(recorded.COLUMNS))
    recorded.write(folder / "forward_bf16.parquet", rows, {"device": GPU.name})
    with registry.claimed(source(device="recorded"), locking) as (device, _):
        assert device.kind == "recorded"


def test_the_simulated_device_may_stand_for_a_gpu_of_nvidia_and_says_that_it_does(locking):
    h200 = replace(source(), hardware=hardware.get(CONFIG / "hardware.yaml", "sm_90_h200"))
    with registry.claimed(h200, locking) as (device, _):
        assert (device.kind, device.name) == ("simulated", "sm_90_h200")


def test_a_gpu_needs_a_driver_and_kernels(locking, monkeypatch):
    monkeypatch.setattr(registry, "boards", lambda backend: [])
    with pytest.raises(UserError, match="--driver and --modules"), registry.claimed(source(device="hip"), locking):
        pass


def test_the_first_free_board_is_claimed_and_the_only_one_that_the_worker_sees(libraries, locking, monkeypatch):
    found = [Board(f"GPU-{number}", "H200", {"CUDA_VISIBLE_DEVICES": f"GPU-{number}"}) for number in "ab"]
    monkeypatch.setattr(registry, "boards", lambda backend: found)
    seen = []
    real = registry.Supervisor
    monkeypatch.setattr(registry, "Supervisor", lambda *args: seen.append(args[1]) or real(*args))
    claim = registry.claimed(source(libraries, device="cuda"), locking)
    with lock.any_of(["gpu-GPU-a"], Path(locking.folder), 1), claim as (device, _):
        assert device.kind == "measured"
    assert seen == [{"CUDA_VISIBLE_DEVICES": "GPU-b"}]


def test_each_kernel_is_looked_for_in_the_library_of_its_build_table(tmp_path):
    (tmp_path / "a.so").touch()
    builds = [pa.table({"kernel": ["k", "l"]}), pa.table({"kernel": ["m"]})]
    find = registry.module_finder(registry.modules_of(builds, [tmp_path / "a.so", tmp_path / "gone.so"]))
    assert find(pd.Series({"kernel": "l"})) == str(tmp_path / "a.so")
    for name in ("m", "unknown"):
        with pytest.raises(UserError, match=f"no library of the kernel {name}"):
            find(pd.Series({"kernel": name}))
    with pytest.raises(UserError, match="1 libraries for 2 build tables"):
        registry.modules_of(builds, [tmp_path / "a.so"])
    assert registry.modules_of(builds, []) == {}


class Nvml:
    """Stands for ``pynvml``: two GPUs, of which the second does not tell its power."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    GPUS = ("GPU-aa", "GPU-bb")

    class NVMLError(Exception):
        pass

    def __init__(self, reasons=0x4, pids=(4711,)):
        self.reasons, self.pids = reasons, pids

    def nvmlInit(self):
        if self.pids is None:
            raise self.NVMLError("no driver")

    def __getattr__(self, name):
        if not name.startswith("nvmlDevice"):
            raise AttributeError(name)
        return lambda *arguments: self.answer(name.removeprefix("nvmlDeviceGet"), *arguments)

    def answer(self, what, gpu=None, which=None):
        if (what, gpu) == ("PowerUsage", "GPU-bb"):
            raise self.NVMLError("Not Supported")
        return {
            "Count": 2, "HandleByIndex": self.GPUS[gpu] if isinstance(gpu, int) else None, "HandleByUUID": gpu,
            "UUID": gpu, "Name": "NVIDIA H200", "ClockInfo": {1: 1980, 2: 3201}.get(which), "PowerUsage": 412_550,
            "Temperature": 51, "CurrentClocksThrottleReasons": self.reasons,
            "ComputeRunningProcesses": [SimpleNamespace(pid=pid) for pid in self.pids],
        }[what]  # fmt: skip


class AmdSmi:
    """Stands for ``amdsmi``: one GPU, which does not tell its memory clock."""

    class AmdSmiException(Exception):
        pass

    AmdSmiClkType = SimpleNamespace(GFX="gfx", MEM="mem")
    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT="hotspot")
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT="current")

    def amdsmi_init(self):
        pass

    def amdsmi_get_processor_handles(self):
        return ["handle"]

    def amdsmi_get_gpu_device_uuid(self, gpu):
        return "uuid"

    def amdsmi_get_gpu_device_bdf(self, gpu):
        return "0000:c1:00.0"

    def amdsmi_get_clock_info(self, gpu, which):
        if which == "mem":
            raise self.AmdSmiException("not supported")
        return {"clk": 2100}

    def amdsmi_get_power_info(self, gpu):
        return {"socket_power": 143}

    def amdsmi_get_temp_metric(self, gpu, sensor, metric):
        return 44 if (sensor, metric) == ("hotspot", "current") else None

    def amdsmi_get_gpu_metrics_info(self, gpu):
        return {"throttle_status": False}

    def amdsmi_get_gpu_process_list(self, gpu):
        return [{"pid": 7}, {"pid": 8}]


@pytest.fixture
def library(monkeypatch):
    """Put a vendor's library in the place of the installed one, if there is one."""
    for variable in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)
    return lambda name, made: monkeypatch.setitem(sys.modules, name, made)


def test_readings_of_nvml(library):
    def reading(nvml, own, number=0):
        library("pynvml", nvml)
        return telemetry.boards("cuda")[number].read(own)

    assert reading(Nvml(), (4711,)) == Reading(1980, 3201, 412.55, 51, throttled="", foreign=0)
    slowed = Reading(1980, 3201, None, 51, throttled="clock event reasons 0x20", foreign=1)
    assert reading(Nvml(0x20, (4711, 815)), (4711,), 1) == slowed
    # In a container the library may show the host's process numbers: one of them is our worker.
    assert reading(Nvml(pids=(99,)), (4711,)).foreign == 0
    assert reading(Nvml(pids=(99,)), ()).foreign == 1


def test_the_library_of_nvidia_has_what_is_asked_for():
    nvml = pytest.importorskip("pynvml")
    for what in ("PowerUsage", "ClockInfo", "Temperature", "CurrentClocksThrottleReasons", "ComputeRunningProcesses"):
        assert callable(getattr(nvml, f"nvmlDeviceGet{what}"))
    assert nvml.nvmlClocksEventReasonHwSlowdown & telemetry.SLOWED
    assert not nvml.nvmlClocksEventReasonSwPowerCap & telemetry.SLOWED


def test_readings_of_amd_smi(library):
    library("amdsmi", AmdSmi())
    (board,) = telemetry.boards("hip")
    assert board.environment["ROCR_VISIBLE_DEVICES"] == "0"
    assert board.read((7,)) == Reading(2100, None, 143, 44, throttled="", foreign=1)


def test_boards_are_those_that_the_environment_shows(library, monkeypatch):
    library("pynvml", Nvml())
    assert [board.uuid for board in telemetry.boards("cuda")] == ["GPU-aa", "GPU-bb"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    (board,) = telemetry.boards("cuda")
    assert board.environment["CUDA_VISIBLE_DEVICES"] == "GPU-bb"


@pytest.mark.parametrize("found", [None, Nvml(pids=None)])
def test_without_library_or_driver_nothing_is_known_and_that_is_said(library, found, capsys):
    # ``None`` makes the import fail.
    library("pynvml", found)
    library("amdsmi", None)
    assert telemetry.boards("cuda") == telemetry.boards("hip") == []
    said = capsys.readouterr().err
    assert "nvidia-ml-py (pip install 'tileseer[gpu]')" in said and "amdsmi" in said
    assert Board().read(()) == Reading()
