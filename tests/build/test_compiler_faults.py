"""A compiler that crashes, is killed, hangs or writes a wrong object: what comes once leaves no trace."""

from __future__ import annotations

import json
from dataclasses import replace

import fake_hipcc
import pytest
from fake_machine import HipMachine, install_compiler
from hypothesis import given
from hypothesis import strategies as st

from tileseer.build import machine_code

TEXTS = ["CODE=1000", "CODE=2000"]
HOWS = ("crash", "kill -9", "hang", "nothing", "cut", "foreign", "another kernel")
OBJECT = fake_hipcc.code_object([("0", "1000"), ("1", "2000")])


@pytest.fixture
def machine(tmp_path):
    made = HipMachine(tmp_path)
    install_compiler(made.compiler, "faulty_hipcc")
    return made


def compiled(machine):
    """Compile two kernels in one run; what differs by the machine left out."""
    made = machine.compile(*TEXTS, batch=2, timeout_seconds=2)
    return [replace(result, log="") for result in made]


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """What a compiler without faults makes."""
    made = compiled(HipMachine(tmp_path_factory.mktemp("right")))
    assert [result.status for result in made] == ["ok"] * 2
    return made


def let(machine, **trouble):
    (machine.folder / "trouble").write_text(json.dumps({"seed": 1} | trouble))


@pytest.mark.parametrize(("how", "call"), [(how, 1 + index % 2) for index, how in enumerate(HOWS)])
def test_a_fault_in_one_call_leaves_no_trace(machine, right, how, call):
    let(machine, how=how, call=call)
    assert compiled(machine) == right
    assert (machine.folder / "hit").exists()
    (machine.folder / "trouble").unlink()
    runs = len(machine.runs)
    assert compiled(machine) == right
    assert len(machine.runs) == runs


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("crash", "compile_error"),
        ("kill -9", "compile_memory"),
        ("no memory", "compile_memory"),
        ("hang", "compile_timeout"),
    ],
)
def test_a_fault_that_comes_again_costs_one_kernel_and_is_not_kept(machine, right, how, status):
    let(machine, how=how, kernel=machine.units(*TEXTS)[1].kernel.name)
    made = compiled(machine)
    assert made[0] == right[0] and (made[1].status, bool(made[1].reason)) == (status, True)
    (machine.folder / "hit").unlink()
    assert compiled(machine) == made
    # Twice: once may be the machine's fault.
    assert (machine.folder / "hit").read_text() == ".."
    (machine.folder / "trouble").unlink()
    assert compiled(machine) == right


@given(data=st.data())
def test_a_damaged_object_is_read_or_refused(data):
    content = bytearray(OBJECT)
    at = data.draw(st.integers(0, len(content) - 1))
    content[at : at + data.draw(st.integers(0, 50))] = data.draw(st.binary(max_size=50))
    numbers = lambda content: machine_code.numbers(content, "block", 2)  # noqa: E731
    for read in (machine_code.amd_kernels, machine_code.cubin_code, numbers):
        try:
            read(bytes(content))
        except ValueError as error:
            assert "object" in str(error) or "cubin" in str(error)
    machine_code.fault(bytes(content))


@given(st.integers(0, len(OBJECT) - 1))
def test_an_object_that_is_cut_short_is_seen(size):
    assert machine_code.fault(OBJECT[:size])
    assert not machine_code.fault(OBJECT, ["probe_0", "probe_1"])
    assert machine_code.fault(OBJECT, ["probe_2"]) == "it does not contain probe_2"
