"""The settings decide on the device; a real GPU is claimed by its board."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import host_library
import pyarrow as pa
import pytest

from tileseer.core.errors import UserError
from tileseer.core.locks import device_locks, hold_first_free
from tileseer.measure import session as sessions
from tileseer.measure.harness import telemetry
from tileseer.measure.harness.telemetry import Board, Reading


@pytest.fixture
def session(tmp_path, libraries):
    """Return a function that makes a session of these settings, and the folder of its locks."""
    locks = {"folder": str(tmp_path / "locks"), "timeout_s": 1.0}
    return lambda **settings: host_library.session(None, driver=libraries[0], lock=locks, **settings)


def test_the_simulated_device_is_the_product_of_the_settings_and_says_that_it_is_simulated(session):
    for product, arch in (("gfx950_mi355x", "gfx950"), ("sm_90_h200", "sm_90")):
        with replace(session(), product=product, arch=arch).hold_device() as (device, _):
            assert (device.kind, device.name) == ("simulated", product)


def test_a_gpu_needs_a_driver_and_kernels(session, monkeypatch):
    monkeypatch.setattr(sessions, "boards", lambda backend: [])
    without = replace(session(device="hip"), driver=None)
    with pytest.raises(UserError, match="--driver and --module"), without.hold_device():
        pass


def test_the_first_free_board_is_claimed_and_the_only_one_that_the_worker_sees(session, tmp_path, monkeypatch):
    boards = [Board(f"GPU-{n}", f"GPU-{n}", "sm_90", {"CUDA_VISIBLE_DEVICES": f"GPU-{n}"}) for n in "ab"]
    monkeypatch.setattr(sessions, "boards", lambda backend: boards)
    seen = []
    real = sessions.Supervisor
    monkeypatch.setattr(sessions, "Supervisor", lambda *args, **how: seen.append(args[1]) or real(*args, **how))
    other = hold_first_free(device_locks(["gpu-GPU-a"], tmp_path / "locks"), timeout_s=1)
    with other, session(device="cuda").hold_device() as (device, _):
        assert device.kind == "measured"
    assert seen == [{"CUDA_VISIBLE_DEVICES": "GPU-b"}]


def test_each_kernel_is_looked_for_in_the_library_of_its_build_table(session, tmp_path):
    (tmp_path / "a.so").touch()
    built = pa.table({"kernel": ["k", "l"]})
    assert session().with_kernels(built, tmp_path / "a.so").module_of("l") == str(tmp_path / "a.so")
    for module, name in ((tmp_path / "gone.so", "k"), (tmp_path / "a.so", "unknown"), (None, "k")):
        with pytest.raises(UserError, match=f"no library of the kernel {name}"):
            session().with_kernels(built, module).module_of(name)


ROCR, HIP, CUDA = telemetry.VARIABLES["hip"]


class Nvml:
    """Stands for ``pynvml``: two GPUs, of which the second does not tell its processes."""

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

    def answer(self, what, gpu=None):
        if (what, gpu) == ("ComputeRunningProcesses", "GPU-bb"):
            raise self.NVMLError("Not Supported")
        return {
            "Count": 2, "HandleByIndex": self.GPUS[gpu] if isinstance(gpu, int) else None,
            "UUID": gpu, "CudaComputeCapability": (9, 0), "CurrentClocksThrottleReasons": self.reasons,
            "ComputeRunningProcesses": [SimpleNamespace(pid=pid) for pid in self.pids],
        }[what]  # fmt: skip


class AmdSmi:
    """Stands for ``amdsmi``: one GPU, older than the status of violations."""

    class AmdSmiException(Exception):
        pass

    def amdsmi_init(self):
        pass

    def amdsmi_get_processor_handles(self):
        return ["handle"]

    def amdsmi_get_gpu_device_bdf(self, gpu):
        return "0000:c1:00.0"

    def amdsmi_get_gpu_metrics_info(self, gpu):
        return {"throttle_status": False}

    def amdsmi_get_gpu_process_list(self, gpu):
        return [{"pid": 7}, {"pid": 8}]


@pytest.fixture
def library(monkeypatch):
    """Put a vendor's library in the place of the installed one, if there is one."""
    for variable in telemetry.VARIABLES["hip"]:
        monkeypatch.delenv(variable, raising=False)
    return lambda name, made: monkeypatch.setitem(sys.modules, name, made)


class Mi300(AmdSmi):
    """Stands for ``amdsmi`` on an MI300 or newer, where the status of older GPUs is not available."""

    def __init__(self, *violations):
        self.violations = violations

    def amdsmi_get_gpu_metrics_info(self, gpu):
        return {"throttle_status": "N/A"}

    def amdsmi_get_violation_status(self, gpu):
        if None in self.violations:
            return {"active_socket_thrm": "N/A"}
        names = ("prochot_thrm", "ppt_pwr", "socket_thrm", "hbm_thrm")
        return {"acc_counter": 7, "active_vr_thrm": "N/A"} | {f"active_{n}": n in self.violations for n in names}


@pytest.mark.parametrize(
    ("smi", "throttled"),
    [
        (Mi300(), ""),
        (Mi300("ppt_pwr"), ""),
        (Mi300("socket_thrm", "hbm_thrm", "ppt_pwr"), "socket_thrm hbm_thrm"),
        (AmdSmi(), ""),
        (Mi300(None), None),
    ],
)
def test_why_a_gpu_of_amd_is_slowed_down(smi, throttled):
    assert telemetry._amd_reading(smi, "handle", ()).throttled == throttled


def test_readings_of_nvml(library):
    def reading(nvml, own, number=0):
        library("pynvml", nvml)
        return telemetry.boards("cuda")[number].read(own)

    assert reading(Nvml(), (4711,)) == Reading(throttled="", foreign=0)
    slowed = "clock event reasons 0x20"
    assert reading(Nvml(0x20, (4711, 815)), (4711,)) == Reading(slowed, foreign=1)
    assert reading(Nvml(0x20, (4711, 815)), (4711,), 1) == Reading(slowed, foreign=None)
    # In a container the library may show the host's process numbers: one of them is our worker.
    assert reading(Nvml(pids=(99,)), (4711,)).foreign == 0
    assert reading(Nvml(pids=(99,)), ()).foreign == 1


@pytest.fixture
def kfd(tmp_path, monkeypatch):
    """Return a function that makes the driver's nodes: two CPUs, then eleven MI300X, or those that are asked for."""

    def make(*versions):
        rows = [0, 0, *(versions or [90402] * 11)]
        for number, version in enumerate(rows):
            folder = tmp_path / f"nodes/{number}"
            folder.mkdir(parents=True)
            text = f"gfx_target_version {version}\nlocation_id {(0x10 + number) << 8}\nunique_id {number}\ndomain 0\n"
            (folder / "properties").write_text(text)
        monkeypatch.setattr(telemetry, "KFD_NODES", tmp_path / "nodes")
        return tmp_path / "nodes"

    return make


def test_the_driver_tells_target_and_address_of_its_gpus_in_the_order_of_its_nodes(kfd):
    nodes = kfd(*[90402] * 9, 90500, 90010, 110000)
    boards = telemetry.amd_boards()
    assert [board.arch for board in boards] == ["gfx942"] * 9 + ["gfx950", "gfx90a", "gfx1100"]
    assert [board.environment[ROCR] for board in boards] == [str(number) for number in range(12)]
    assert (boards[0].lock, boards[9].lock) == ("0000:12:00.0", "0000:1b:00.0")
    # A GPU of another container cannot be read.
    (nodes / "2/properties").unlink()
    assert telemetry.amd_boards()[0].lock == "0000:13:00.0"


def test_readings_of_amd_smi_are_those_of_the_gpu_at_its_address(library, kfd, capsys):
    kfd()
    smi = AmdSmi()
    smi.amdsmi_get_gpu_device_bdf = lambda gpu: "0000:14:00.0"
    library("amdsmi", smi)
    boards = telemetry.boards("hip")
    assert boards[2].read((7,)) == Reading(throttled="", foreign=1)
    assert boards[0].read((7,)) == Reading() and not capsys.readouterr().err


def test_without_amd_smi_each_gpu_has_a_lock_of_its_own_and_one_warning(library, kfd, session, tmp_path, capsys):
    kfd(90402, 90402)
    library("amdsmi", None)
    with session(device="hip").hold_device(), session(device="hip").hold_device():
        held = sorted(path.name for path in (tmp_path / "locks").iterdir() if path.read_text())
    assert held == ["tileseer-gpu-0000_12_00_0.lock", "tileseer-gpu-0000_13_00_0.lock"]
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and all("amdsmi" in line and "lock" not in line for line in said)


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        ({}, range(11)),
        ({ROCR: "5,3"}, [5, 3]),
        ({ROCR: "GPU-0000000000000004, 0"}, [2, 0]),
        ({ROCR: "1,-1,2"}, [1]),
        ({HIP: "10,2"}, [10, 2]),
        ({CUDA: "4"}, [4]),
        ({HIP: "", CUDA: "4"}, [4]),
        ({ROCR: "6,7,8", CUDA: "2,0"}, [8, 6]),
        ({ROCR: "6,7,8", HIP: "0,5"}, [6]),
        ({ROCR: "6,7,8", HIP: "2", CUDA: "0"}, [8]),
        ({ROCR: ""}, None),
        ({ROCR: "2", HIP: "2"}, None),
    ],
    ids=str,
)
def test_gpus_of_amd_are_those_that_the_variables_show_together(library, kfd, monkeypatch, given, numbers):
    kfd()
    library("amdsmi", AmdSmi())
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    if numbers is None:
        with pytest.raises(UserError, match=r"none of the 11 GPUs of this machine is visible: .*ROCR_VIS"):
            telemetry.boards("hip")
        return
    boards = telemetry.boards("hip")
    assert [board.environment[ROCR] for board in boards] == [str(number) for number in numbers]
    # What a worker inherits shows it exactly the GPU of its board, whatever was set before.
    gpus = telemetry.amd_boards()
    for number, board in zip(numbers, boards, strict=True):
        for name, value in board.environment.items():
            monkeypatch.setenv(name, value)
        assert telemetry.visible_boards("hip", gpus) == [gpus[number]]


@pytest.mark.parametrize(
    ("given", "uuids"),
    [(None, ["GPU-aa", "GPU-bb"]), ("1", ["GPU-bb"]), ("GPU-b", ["GPU-bb"]), ("1,0", ["GPU-bb", "GPU-aa"]),
     ("0,7,1", ["GPU-aa"]), ("", None)],
)  # fmt: skip
def test_gpus_of_nvidia_are_those_that_the_variable_shows(library, monkeypatch, given, uuids):
    library("pynvml", Nvml())
    if given is not None:
        monkeypatch.setenv(CUDA, given)
    if uuids is None:
        with pytest.raises(UserError, match="none of the 2 GPUs of this machine is visible"):
            telemetry.boards("cuda")
        return
    boards = telemetry.boards("cuda")
    assert [board.uuid for board in boards] == [board.environment[CUDA] for board in boards] == uuids


def test_another_arch_than_the_machines_is_told(library, kfd, monkeypatch):
    library("pynvml", Nvml())
    for device, arch in (("cuda", "sm_90"), ("cuda", "sm_90a"), ("simulated", "gfx950")):
        telemetry.refuse_other_gpus(device, arch)
    kfd(90402, 90500)
    for arch in ("gfx950", "gfx942"):
        telemetry.refuse_other_gpus("hip", arch)
    monkeypatch.setenv(HIP, "0")
    with pytest.raises(UserError, match="visible GPUs are gfx942, not gfx950; give --config arch=gfx942"):
        telemetry.refuse_other_gpus("hip", "gfx950")
    with pytest.raises(UserError, match="sm_90, not sm_80"):
        telemetry.refuse_other_gpus("cuda", "sm_80")
    # No GPU here: the machine that measures finds out.
    monkeypatch.setattr(telemetry, "KFD_NODES", Path("absent"))
    telemetry.refuse_other_gpus("hip", "gfx950")


@pytest.mark.parametrize("found", [None, Nvml(pids=None)])
def test_without_library_or_driver_nothing_is_known_and_that_is_said(library, found, capsys):
    # ``None`` makes the import fail.
    library("pynvml", found)
    library("amdsmi", None)
    assert telemetry.boards("cuda") == telemetry.boards("hip") == []
    said = capsys.readouterr().err
    assert "nvidia-ml-py (pip install -e '.[gpu]' in a checkout of Tileseer)" in said and "amdsmi" in said
    assert Board().read(()) == Reading()
