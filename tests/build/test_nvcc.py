"""The toolchain for NVIDIA GPUs and the libraries that are built with it, with a compiler that fails on demand."""

from __future__ import annotations

from dataclasses import replace

import fake_nvcc
import pytest
from fake_machine import CudaMachine
from kernel_samples import a_kernel
from repository import COEFFICIENTS, H200, ROOT

from tileseer.build import compiler, registration
from tileseer.build.base import CompileUnit, NoToolchain
from tileseer.build.machine_code import cubin_code, numbers, ptxas_usages
from tileseer.build.modules import batches
from tileseer.core import parquet
from tileseer.core.errors import UserError
from tileseer.facts.compile import CompileSettings
from tileseer.libraries.cutlass.kernel import CutlassKernel
from tileseer.libraries.registry import emitter_of, tree_of_toolchain

KERNEL = CudaMachine.kernels[0]


@pytest.fixture
def machine(tmp_path):
    return CudaMachine(tmp_path)


def test_what_the_assembler_says_becomes_resources(machine):
    first, second = machine.compile("CODE=1", "CODE=2 SPILL=64")
    assert (first.status, second.status) == ("ok", "ok")
    r = second.resources
    assert (r.source, r.vgprs, r.scratch_bytes, r.vgpr_spills, r.threads) == ("code_object", 128.0, 16, 16, 128)
    assert r.lds_bytes == 512 + 49152
    assert r.occupancy == machine.toolchain().blocks_per_cu(128, 128, 512 + 49152) == 4
    assert r.code_bytes == 16
    assert first.code_hash != second.code_hash


def test_a_library_links_what_was_compiled(machine):
    machine.compile("CODE=1", "CODE=2")
    runs = machine.runs
    assert b"_block" in machine.link("CODE=1", "CODE=2")
    assert machine.runs == runs


def test_an_object_that_is_cut_short_costs_its_kernel_and_is_never_kept(machine):
    texts = ["CODE=1", "CUT", "CODE=2"]
    results = machine.compile(*texts, batch=50)
    assert [result.status for result in results] == ["ok", "compile_error", "ok"]
    assert "twice, but its output cannot be used" in results[1].reason
    with pytest.raises(UserError, match=r"its object of .* cannot be used: unit.o: this is no ELF file"):
        machine.link("CUT")
    runs = len(machine.runs)
    with pytest.raises(UserError, match="cannot be used"):
        machine.link("CUT")
    assert len(machine.runs) == runs + 1


def test_a_library_that_was_never_compiled_is_compiled(machine):
    assert machine.link("CODE=1") and machine.link() == b""
    assert len(machine.runs) == 1
    with pytest.raises(UserError, match=machine.units("")[0].kernel.name):
        machine.link("FAIL")


def test_one_more_kernel_changes_one_batch():
    kernels = [replace(KERNEL, swizzle=1, stages=stages) for stages in range(3, 200)]
    all_units = [CompileUnit(kernel, "sm_90", b"") for kernel in kernels]
    before, after = batches(all_units[1:], 10), batches(all_units, 10)
    assert sum(len(batch) for batch in after) == len(kernels)
    assert max(len(batch) for batch in after) <= 20
    assert len([batch for batch in after if batch not in before]) <= 2
    assert len(after) > 5


@pytest.mark.parametrize("operation", ["forward_bf16", "bwd_data_bf16", "bwd_weight_bf16"])
def test_occupancy_is_what_the_cuda_runtime_said_of_every_recorded_kernel(operation, machine):
    blocks = machine.toolchain().blocks_per_cu
    for row in parquet.read_table(ROOT / f"config/recorded/sm_90/{operation}/kernels.parquet").to_pylist():
        kernel = CutlassKernel.parse(row["kernel"])
        threads = 32 * kernel.wave_m * kernel.wave_n * kernel.wave_k
        assert blocks(threads, row["registers"], row["shared_bytes"]) == row["blocks"]


def test_without_a_compiler_the_operand_buffers_are_what_is_known():
    large = replace(KERNEL, tile_m=256, tile_n=256, stages=8)
    fits, too_large = NoToolchain(H200, COEFFICIENTS).compile(
        [CompileUnit(kernel, "sm_90", b"") for kernel in (KERNEL, large)]
    )
    assert (fits.status, fits.resources.source, fits.resources.vgprs) == ("ok", "estimated", None)
    assert fits.resources.lds_bytes == (128 + 128) * 32 * 2 * 3
    assert too_large.status == "resource_limit"
    assert str((256 + 256) * 32 * 2 * 8) in too_large.reason


def test_a_toolchain_of_another_maker_is_named(machine):
    for arch, name, right in (("gfx950", "nvcc", "hipcc"), ("sm_90", "hipcc", "nvcc"), ("sm_90", "none", "nvcc")):
        with pytest.raises(UserError, match=f"{name} builds nothing for {arch}; write {right}"):
            registration.builder_parts({"compile": {"toolchain": name}}, arch, machine.folder)


def test_what_is_missing_is_said_with_the_way_to_get_it(tmp_path):
    with pytest.raises(UserError, match="make cuda-toolchain"):
        compiler.find_compiler(CompileSettings(toolchain="nvcc", compiler=str(tmp_path / "nvcc")))
    with pytest.raises(UserError, match=r"has the folder include/cutlass; run `make cuda-toolchain`"):
        tree_of_toolchain("nvcc").find(str(tmp_path))


def test_files_of_another_kind_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no cubin"):
        cubin_code(b"\x7fELF")
    with pytest.raises(ValueError, match="no object file"):
        numbers(b"text", "a_block", 2)
    with pytest.raises(ValueError, match="no symbol b_block"):
        numbers(fake_nvcc.host_object(["a"]), "b_block", 2)
    assert ptxas_usages("nothing of the assembler") == {}


def test_each_library_registers_its_kernels_in_its_own_way():
    ck = a_kernel()
    text = emitter_of([ck]).registration_source([ck])
    assert text.splitlines() == [
        f'#include "{ck.name}.hpp"', '#include "ck_tile_kernel.hpp"', "",
        f"TILESEER_CK_KERNEL({ck.name}, CONV_{ck.variant.upper()}, {ck.ndim}, CONV_{ck.dtype.upper()})",
    ]  # fmt: skip
    assert f'#include "{KERNEL.name}.cuh"' in emitter_of([KERNEL]).registration_source([KERNEL])
    with pytest.raises(UserError, match="one library at a time"):
        emitter_of([ck, KERNEL])
