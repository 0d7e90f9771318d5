"""The settings decide on the device; a real GPU is claimed by its board."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from tileseer.core import lock
from tileseer.core.errors import UserError
from tileseer.devices import recorded, registry
from tileseer.devices.harness import telemetry
from tileseer.devices.harness.telemetry import Board, Reading, amd_reading, nvidia_reading
from tileseer.gpu import hardware
from tileseer.settings.benchmark import BenchmarkSettings, LockSettings

CONFIG = Path(__file__).parents[2] / "config"
GPU = hardware.get(CONFIG / "hardware.yaml", "gfx950_mi355x")


def source(libraries=(None, None), **settings):
    made = BenchmarkSettings.from_json(json.dumps(settings))
    driver = Path(libraries[0]) if libraries[0] else None
    return registry.Source(made, GPU, CONFIG / "simulated_device.yaml", driver, operation="forward_bf16")


@pytest.fixture
def locking(tmp_path):
    return LockSettings(folder=str(tmp_path / "locks"), timeout_s=1.0)


def test_simulated_and_recorded_devices(locking, tmp_path, monkeypatch):
    with registry.claimed(source(), locking) as (device, _):
        assert (device.kind, device.name) == ("simulated", GPU.name)
    monkeypatch.chdir(tmp_path)
    absent = registry.claimed(source(device="recorded", recordings="here"), locking)
    with pytest.raises(UserError, match="no recording of forward_bf16 on gfx950_mi355x"), absent:
        pass
    folder = tmp_path / "here" / GPU.name
    folder.mkdir(parents=True)
    rows = pd.DataFrame([("k", 1, "p", "ok", "", 1.0, 0.1, 2, 3)], columns=list(recorded.COLUMNS))
    recorded.write(folder / "forward_bf16.parquet", rows, {"device": GPU.name})
    with registry.claimed(source(device="recorded", recordings="here"), locking) as (device, _):
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
    monkeypatch.setattr(telemetry, "_run", lambda command: None)
    seen = []
    real = registry.Supervisor
    monkeypatch.setattr(registry, "Supervisor", lambda *args: seen.append(args[1]) or real(*args))
    claim = registry.claimed(source(libraries, device="cuda"), locking)
    with lock.exclusive("gpu-GPU-a", Path(locking.folder), 1), claim as (device, _):
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


def test_readings_of_nvidia_smi():
    reading = nvidia_reading("1980, 3201, 412.55, 51, 0x0000000000000004\n", "4711\n", own=(4711,))
    assert reading == Reading(1980, 3201, 412.55, 51, throttled="", foreign=0)
    slowed = nvidia_reading("1200, 3201, [N/A], 88, 0x0000000000000020\n", "4711\n815\n", own=(4711,))
    assert slowed == Reading(1200, 3201, None, 88, throttled="clock event reasons 0x20", foreign=1)
    # In a container the tool may show the host's process numbers: one of them is our worker.
    assert nvidia_reading("", "99\n", own=(4711,)).foreign == 0
    assert nvidia_reading("", "99\n", own=()).foreign == 1
    assert nvidia_reading(None, None, own=()) == Reading()
    assert nvidia_reading("an error message", "No devices were found", own=()) == Reading(foreign=0)


def test_readings_of_amd_smi():
    state = {
        "gpu": 0,
        "power": {"socket_power": {"value": 143, "unit": "W"}, "throttle_status": "UNTHROTTLED"},
        "clock": {"gfx_0": {"clk": {"value": 2100, "unit": "MHz"}}, "mem_0": {"clk": {"value": 1300, "unit": "MHz"}}},
        "temperature": {"edge": "N/A", "hotspot": {"value": 44, "unit": "C"}},
    }
    users = [{"gpu": 0, "process_list": [{"process_info": {"pid": 7}}, {"process_info": {"pid": 8}}]}]
    reading = amd_reading(json.dumps([state]), json.dumps(users), own=(7,))
    assert reading == Reading(2100, 1300, 143, 44, throttled="", foreign=1)
    assert amd_reading("no JSON", None, own=()) == Reading()


def test_boards_are_those_that_the_environment_shows(monkeypatch):
    listed = "0, GPU-aa, NVIDIA H200\n1, GPU-bb, NVIDIA H200\n"
    monkeypatch.setattr(telemetry, "_run", lambda command: listed)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [board.uuid for board in telemetry.boards("cuda")] == ["GPU-aa", "GPU-bb"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    (board,) = telemetry.boards("cuda")
    assert board.environment["CUDA_VISIBLE_DEVICES"] == "GPU-bb"
    monkeypatch.setattr(telemetry, "_run", lambda command: None)
    assert telemetry.boards("cuda") == telemetry.boards("hip") == []
