"""What toolchains have in common, with compilers that fail on demand (fake_hipcc.py, fake_nvcc.py)."""

from dataclasses import replace

import pytest
from fake_machine import CudaMachine, HipMachine


@pytest.fixture(params=[HipMachine, CudaMachine], ids=["hipcc", "nvcc"])
def machine(request, tmp_path):
    return request.param(tmp_path)


def test_the_same_code_has_the_same_hash_wherever_it_lies(machine):
    first, second, other = machine.compile("CODE=5", "CODE=5 //", "CODE=6")
    assert first.code_hash == second.code_hash != other.code_hash


def test_a_second_run_compiles_nothing(machine):
    first = machine.compile("CODE=1", "FAIL")
    runs = len(machine.runs)
    assert machine.compile("CODE=1", "FAIL") == [replace(result, log="") for result in first]
    assert len(machine.runs) == runs


REASONS = {"FAIL": "KERNEL has no such member", "PTXAS": "too much shared data in a kernel"}


@pytest.mark.parametrize(
    ("kind", "word"), [(HipMachine, "FAIL"), (HipMachine, "FAIL SILENT"), (CudaMachine, "FAIL"), (CudaMachine, "PTXAS")]
)
def test_one_failing_kernel_leaves_its_batch_alone(kind, word, tmp_path):
    results = kind(tmp_path).compile(*(f"CODE={index}" for index in range(3)), f"{word} 3", "CODE=4", batch=50)
    assert [result.status for result in results] == ["ok"] * 3 + ["compile_error", "ok"]
    assert (results[3].reason, results[3].code_hash) == (REASONS[word.split()[0]], "")


@pytest.mark.parametrize("edited", ["included", "launcher"])
def test_what_is_compiled_makes_a_kernel_another_one(machine, edited):
    machine.statuses("CODE=1")
    machine.write(getattr(machine, edited), "int changed;")
    machine.statuses("CODE=1")
    # The device pass of hipcc has no launcher.
    assert len(machine.runs) == (1 if (machine.program, edited) == ("hipcc", "launcher") else 2)
