"""The emulated GPU without a compiler: a kernel of a few instructions, orders of waves, memory, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_emulated_opcodes import encoded
from tinygrad.runtime.autogen.amd.cdna import ins

from tileseer.cli import main
from tileseer.conv.operation import Operation
from tileseer.conv.problem import Problem
from tileseer.core.errors import UserError
from tileseer.devices.emulated import dispatch
from tileseer.devices.emulated.faults import EmulationFault
from tileseer.devices.emulated.memory import Memory
from tileseer.devices.emulated.problems import STEPS, tiny_problems
from tileseer.devices.emulated.program import Program
from tileseer.devices.gpu import GpuDevice
from tileseer.devices.harness.supervisor import Request, Supervisor
from tileseer.families.ck_tile.kernel import parse
from tileseer.gpu import code_object
from tileseer.gpu.arch import ArchSpecs
from tileseer.gpu.code_object import Kernel
from tileseer.reference import rule_sets
from tileseer.settings.benchmark import Timing
from tileseer.verdicts.execution import Verdict

ROOT = Path(__file__).parents[2]
END = encoded("SOPP", ins.SOPPOp.S_ENDPGM)
BARRIER = encoded("SOPP", ins.SOPPOp.S_BARRIER)
WAIT = encoded("SOPP", ins.SOPPOp.S_WAITCNT, simm16=0)
VOP1, VOP2, DS, GLOBAL = ins.VOP1Op, ins.VOP2Op, ins.DSOp, ins.GLOBALOp


def exchange(barrier):
    """Each thread writes its number to LDS, then stores that of the thread 64 before it to memory.

    s[8:9] is the address of the arguments, of which the first is that of the output; s10 is the workgroup.
    """
    return b"".join([
        encoded("SMEM", ins.SMEMOp.S_LOAD_DWORDX2, sbase=4, sdata=12, imm=1),
        encoded("VOP2", VOP2.V_LSHLREV_B32_E32, src0=128 + 2, vsrc1=0, vdst=1),
        encoded("DS", DS.DS_WRITE_B32, addr=1, data0=0),
        WAIT,
        barrier,
        encoded("VOP2", VOP2.V_SUBREV_U32_E32, src0=128 + 64, vsrc1=0, vdst=2),
        encoded("VOP2_LIT", VOP2.V_AND_B32_E32, src0=255, vsrc1=2, vdst=2, literal=255),
        encoded("VOP2", VOP2.V_LSHLREV_B32_E32, src0=128 + 2, vsrc1=2, vdst=2),
        encoded("DS", DS.DS_READ_B32, addr=2, vdst=3),
        WAIT,
        encoded("SOP2_LIT", ins.SOP2Op.S_MUL_I32, ssrc0=255, ssrc1=10, sdst=14, literal=1024),
        encoded("VOP2", VOP2.V_ADD_U32_E32, src0=14, vsrc1=1, vdst=1),
        encoded("GLOBAL", GLOBAL.GLOBAL_STORE_DWORD, addr=1, saddr=12, data=3),
        END,
    ])  # fmt: skip


def launch(code, seed, groups=3, threads=256, lds=1024, properties=8, out_words=None):
    out = np.full(groups * 256 if out_words is None else out_words, -1, np.int32)
    arguments = np.array([out.ctypes.data], np.uint64)
    memory = Memory()
    memory.add(out.ctypes.data, out.nbytes, "output")
    memory.add(arguments.ctypes.data, arguments.nbytes, "arguments")
    # The arguments' address in s[0:1]: 8 registers before it belong to the dispatch and so on.
    kernel = Kernel("exchange", 0, lds, 0, 8, (), 10 << 1 | 1 << 7, 1 | 2 | 4 | properties)
    where = dispatch.Launch(kernel, 0, int(arguments.ctypes.data), (groups, 1, 1), (threads, 1, 1))
    dispatch.run(where, Program(code, 0, "gfx950"), memory, seed)
    return out


def test_threads_exchange_through_lds_in_every_order():
    want = (np.arange(256) - 64) % 256
    for seed in range(6):
        assert launch(exchange(BARRIER), seed).reshape(3, 256).tolist() == [want.tolist()] * 3


def test_a_missing_barrier_depends_on_the_order():
    want = np.tile((np.arange(256) - 64) % 256, 3)
    right = {bool((launch(exchange(b""), seed) == want).all()) for seed in range(8)}
    assert False in right
    # What is read before it is written is not a number.
    assert (launch(exchange(b""), 0)[:64] == -1).all()


def test_the_last_wave_may_be_partial():
    out = launch(exchange(BARRIER), 1, groups=1, threads=100)
    assert (out[:36] == -1).all() or (out[:64] == -1).all()
    assert out[64:100].tolist() == list(range(36)) and (out[100:] == -1).all()


def test_memory_that_was_not_allocated_is_a_fault():
    with pytest.raises(EmulationFault, match=r"S_ENDPGM at 0x.*: 4 bytes at address 0x.* are in no memory"):
        launch(exchange(BARRIER), 0, groups=2, out_words=256)
    with pytest.raises(EmulationFault, match=r"outside of the LDS of a workgroup, which has 512 bytes"):
        launch(exchange(BARRIER), 0, lds=512)


def test_a_kernel_that_does_not_end_is_a_fault(monkeypatch):
    monkeypatch.setattr(dispatch, "MOST_STOPS", 50)
    loop = WAIT + encoded("SOPP", ins.SOPPOp.S_BRANCH, simm16=0xFFFE) + END
    with pytest.raises(EmulationFault, match=r"workgroup \(0, 0, 0\) does not end: 50 barriers and waits"):
        launch(loop, 0)


def test_no_code_object_is_said():
    with pytest.raises(ValueError, match="no AMDGPU code object"):
        code_object.load(b"\x7fELF but nothing else")
    with pytest.raises(ValueError, match="no bundle"):
        code_object.bundled(b"nothing")


@pytest.mark.parametrize("variant", ["fwd", "bwd_data", "bwd_weight"])
@pytest.mark.parametrize("shape", ["nhwgc_2d", "ndhwgc_3d"])
def test_tiny_problems_reach_the_corners(variant, shape):
    kernel = parse(f"grouped_conv_{variant}_bf16_{shape}_compv3_cshuffle_intrawave_64x64x64_2x2x1_16x16x32")
    pairs = tiny_problems(kernel)
    problems = [problem for problem, _ in pairs]
    assert all(isinstance(p, Problem) and p.variant == kernel.variant and p.ndim == kernel.ndim for p in problems)
    assert {split for _, split in pairs} == {1, 2}
    depth = {"fwd": lambda p: p.C, "bwd_data": lambda p: p.K, "bwd_weight": lambda p: p.N * p.Di * p.Hi * p.Wi}[variant]
    assert [depth(p) // 64 for p in problems[: len(STEPS)]] == list(STEPS)
    for corner in (
        lambda p: p.pad_h, lambda p: p.stride_h > 1, lambda p: p.dilation_h > 1 or p.dilation_d > 1, lambda p: p.G > 1,
        lambda p: p.Y * p.X == 1, lambda p: p.Y > 1 and not p.pad_h,
    ):  # fmt: skip
        assert any(corner(p) for p in problems)
    assert kernel.ndim == 2 or any(p.Z > 1 and p.stride_d > 1 for p in problems)


class Emulated:
    def device(self):
        return {"backend": "emulated"}


def test_nothing_is_measured_on_an_emulated_gpu():
    with pytest.raises(UserError, match="emulated GPU has no times"):
        GpuDevice("gfx950_mi355x", "measured", "driver.so", str, Emulated(), None, Timing(), 1, None)


@pytest.mark.parametrize(("wrong", "status"), [([0, 0, 0], "ok"), ([0, 3, 0], "race"), ([5, 3, 4], "wrong_result")])
def test_what_depends_on_the_order_of_waves_is_a_race(wrong, status):
    check = {"wrong": max(wrong), "elements": 64, "not_finite": 0, "worst": 3.0}
    answer = {"code": 0, "error": "", "check": check, "wrong": wrong, "opcodes": {"s_endpgm": 1000}}
    outcome = Supervisor("driver.so")._verdict(answer, Request(("driver.so",), "kernel", (), {}), ())
    assert outcome.status == status
    assert status != "race" or outcome.error == "elements wrong; in orders of the waves: 0 3 0"


def test_mistakes_in_a_list_are_told(tmp_path, capsys, monkeypatch):
    assert main.main(["verify", "--emulate"]) == 2
    assert "give a list of names, or --sample N for N of the default pool" in capsys.readouterr().err
    assert main.main(["verify"]) == 2
    assert "which file or folder?" in capsys.readouterr().err
    path = tmp_path / "kernels.txt"
    path.write_text("\n")
    assert main.main(["verify", str(path), "--emulate"]) == 2
    assert "the list is empty; write one kernel name a line" in capsys.readouterr().err
    path.write_text("grouped_conv_forward\n")
    assert main.main(["verify", str(path), "--emulate"]) == 2
    assert "grouped_conv_forward" in capsys.readouterr().err
    assert main.main(["verify", str(tmp_path / "none.txt"), "--emulate"]) == 2
    assert "no list of kernel names" in capsys.readouterr().err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main.main(["verify", str(path), "--emulate"]) == 2
    assert "pip install 'tileseer[emulate]'" in capsys.readouterr().err


def test_a_sample_without_a_list_is_of_the_default_pool(monkeypatch, capsys):
    asked = []

    def verdicts(workshop, kernels, jobs):
        asked.append((workshop.arch, workshop.most, [kernel.name for kernel in kernels]))
        return [Verdict(kernel.name, "ok") for kernel in kernels]

    monkeypatch.setattr("tileseer.client.emulation.verdicts", verdicts)
    for sample in ("5", "8"):
        assert main.main(["verify", "--emulate", "--arch", "gfx942", "--sample", sample, "--quick"]) == 0
    assert "8 kernels executed on an emulated gfx942, 0 failed" in capsys.readouterr().out
    (few, many) = (set(names) for _, _, names in asked)
    assert [(arch, most) for arch, most, _ in asked] == [("gfx942", 1)] * 2
    assert len(few) == 5 and len(many) == 8 and few < many
    assert main.main(["verify", "--emulate", "--sample", "9999"]) == 0
    pool = rule_sets.enumeration(
        str(ROOT / "config/rule_sets/sweep.yaml"), ROOT / "config/rule_sets", None,
        ArchSpecs.load(ROOT / "config/arch_specs.json"), "gfx950", Operation("bwd_data", "bf16"), [2, 3], [],
    ).kernels  # fmt: skip
    assert {kernel.name for kernel in pool} < set(asked[-1][2])
