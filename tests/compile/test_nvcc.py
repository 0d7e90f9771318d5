"""The toolchain for NVIDIA GPUs and the libraries that are built with it, with a compiler that fails on demand."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import fake_nvcc
import pytest

from tileseer.compile import compiler, registry
from tileseer.compile import source_trees as trees
from tileseer.compile.base import CompileUnit
from tileseer.compile.libraries import Libraries, batches
from tileseer.compile.machine_code import cubin_code, numbers, ptxas_usages
from tileseer.compile.none import NoToolchain
from tileseer.compile.nvcc import NvccToolchain
from tileseer.config.compile import CompileSettings
from tileseer.core import parquet
from tileseer.core.cache import Cache
from tileseer.core.errors import UserError
from tileseer.costmodel.coefficients import load_coefficients
from tileseer.gpus import hardware
from tileseer.kernels.cutlass.kernel import CutlassKernel
from tileseer.kernels.library import LIBRARIES
from tileseer.kernels.registry import registration_source

ROOT = Path(__file__).parents[2]
H200 = hardware.read_hardware(ROOT / "config/hardware.yaml", "sm_90_h200")
KERNEL = CutlassKernel.parse("cutlass_conv_fwd_bf16_nhwc_2d_optimized_128x128x32_2x2x1_16x8x16_s3_swz1_vec8_8_8")
TESTS = ROOT / "tests/builders"


@pytest.fixture
def machine(tmp_path):
    """A machine with a compiler, a CUTLASS tree of one header and a cache."""
    return Machine(tmp_path)


class Machine:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.compiler = folder / "nvcc"
        text = (
            Path(fake_nvcc.__file__)
            .read_text()
            .replace("import re\n", f"import sys\nsys.path.insert(0, {str(TESTS)!r})\nimport re\n", 1)
        )
        self.compiler.write_text(f"#!{sys.executable}\n{text}")
        self.compiler.chmod(0o755)
        self.header("")
        self.native = folder / "native"
        self.native.mkdir()
        self.launcher("")

    def header(self, text: str) -> None:
        path = self.folder / "cutlass/include/cutlass/cutlass.h"
        path.parent.mkdir(parents=True, exist_ok=True)
        self.write(path, text)

    def launcher(self, text: str) -> None:
        self.write(self.native / "cutlass_kernel.hpp", text)

    def write(self, path: Path, text: str) -> None:
        path.write_text(text)
        trees.content_digest.cache_clear()

    @property
    def settings(self) -> CompileSettings:
        return CompileSettings(toolchain="nvcc", compiler=str(self.compiler), memory_mib=2048)

    @property
    def parts(self):
        tree = trees.tree_of("nvcc", {"cutlass": str(self.folder / "cutlass")})
        return compiler.find(self.settings), tree, Cache(self.folder / "cache", 2**30)

    def compile(self, *texts: str, **settings):
        return self.toolchain(**settings).compile(units(*texts))

    def toolchain(self, **settings) -> NvccToolchain:
        found, tree, cache = self.parts
        wanted = self.settings.model_copy(update=settings)
        return NvccToolchain(found, tree, wanted, cache, self.native, H200)

    def module(self, *texts: str) -> bytes:
        found, tree, cache = self.parts
        return Libraries(found, tree, self.settings, cache, self.native).module(units(*texts))

    @property
    def runs(self) -> list[list[str]]:
        path = self.folder / "runs"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def units(*texts: str) -> list[CompileUnit]:
    kernels = [replace(KERNEL, stages=3 + index) for index in range(len(texts))]
    return [
        CompileUnit(kernel, "sm_90", f"#include <cutlass/cutlass.h>\n// {kernel.name}\n{text}".encode())
        for kernel, text in zip(kernels, texts, strict=True)
    ]


def test_what_the_assembler_says_becomes_resources(machine):
    first, second = machine.compile("CODE=1", "CODE=2 SPILL=64")
    assert (first.status, second.status) == ("ok", "ok")
    r = second.resources
    assert (r.source, r.vgprs, r.scratch_bytes, r.vgpr_spills, r.threads) == ("code_object", 128.0, 16, 16, 128)
    assert r.lds_bytes == 512 + 49152
    assert r.occupancy == machine.toolchain().blocks_per_cu(128, 128, 512 + 49152) == 4
    assert r.code_bytes == 16
    assert first.code_hash != second.code_hash


def test_the_same_code_has_the_same_hash_whatever_its_name(machine):
    first, second = machine.compile("CODE=7", "CODE=7 //")
    assert first.code_hash == second.code_hash


def test_a_second_run_compiles_nothing_and_a_library_links_what_was_compiled(machine):
    machine.compile("CODE=1", "CODE=2")
    runs = machine.runs
    machine.compile("CODE=1", "CODE=2")
    assert b"_block" in machine.module("CODE=1", "CODE=2")
    assert machine.runs == runs


@pytest.mark.parametrize("word", ["FAIL", "PTXAS"])
def test_one_failing_kernel_leaves_the_others_and_the_library_has_those(machine, word):
    texts = [f"CODE={index}" for index in range(5)]
    texts[2] = word
    results = machine.compile(*texts, batch=50)
    assert [result.status for result in results] == ["ok", "ok", "compile_error", "ok", "ok"]
    wanted = {"FAIL": "KERNEL has no such member", "PTXAS": "too much shared data in a kernel"}
    assert results[2].reason == wanted[word]


def test_an_object_that_is_cut_short_costs_its_kernel_and_is_never_kept(machine):
    texts = ["CODE=1", "CUT", "CODE=2"]
    results = machine.compile(*texts, batch=50)
    assert [result.status for result in results] == ["ok", "compile_error", "ok"]
    assert "twice, but its output cannot be used" in results[1].reason
    with pytest.raises(UserError, match=r"its object of .* cannot be used: unit.o: this is no ELF file"):
        machine.module("CUT")
    runs = len(machine.runs)
    with pytest.raises(UserError, match="cannot be used"):
        machine.module("CUT")
    assert len(machine.runs) == runs + 1


@pytest.mark.parametrize("change", ["header", "launcher"])
def test_what_a_kernel_includes_makes_it_another_one_to_compile(machine, change):
    machine.compile("CODE=1")
    getattr(machine, change)("int changed;")
    machine.compile("CODE=1")
    assert len(machine.runs) == 2


def test_a_library_that_was_never_compiled_is_compiled(machine):
    assert machine.module("CODE=1")
    assert len(machine.runs) == 1
    assert machine.module() == b""


def test_a_library_that_does_not_compile_says_which_kernels(machine):
    with pytest.raises(UserError, match=units("")[0].kernel.name):
        machine.module("FAIL")


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
    coefficients = load_coefficients(ROOT / "config/simulated_device.yaml")
    large = replace(KERNEL, tile_m=256, tile_n=256, stages=8)
    fits, too_large = NoToolchain(H200, coefficients).compile(
        [CompileUnit(kernel, "sm_90", b"") for kernel in (KERNEL, large)]
    )
    assert (fits.status, fits.resources.source, fits.resources.vgprs) == ("ok", "estimated", None)
    assert fits.resources.lds_bytes == (128 + 128) * 32 * 2 * 3
    assert too_large.status == "resource_limit"
    assert str((256 + 256) * 32 * 2 * 8) in too_large.reason


def test_a_toolchain_of_another_maker_is_named(machine):
    for arch, name, right in (("gfx950", "nvcc", "hipcc"), ("sm_90", "hipcc", "nvcc"), ("sm_90", "none", "nvcc")):
        with pytest.raises(UserError, match=f"{name} builds nothing for {arch}; write {right}"):
            registry.parts({"compile": {"toolchain": name}}, arch, machine.native)


def test_what_is_missing_is_said_with_the_way_to_get_it(tmp_path):
    with pytest.raises(UserError, match="make cuda-toolchain"):
        compiler.find(CompileSettings(toolchain="nvcc", compiler=str(tmp_path / "nvcc")))
    with pytest.raises(UserError, match=r"has the folder include/cutlass; run `make cuda-toolchain`"):
        LIBRARIES["nvcc"].find(str(tmp_path))


def test_files_of_another_kind_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no cubin"):
        cubin_code(b"\x7fELF")
    with pytest.raises(ValueError, match="no object file"):
        numbers(b"text", "a_block", 2)
    with pytest.raises(ValueError, match="no symbol b_block"):
        numbers(fake_nvcc.host_object(["a"]), "b_block", 2)
    assert ptxas_usages("nothing of the assembler") == {}


def test_each_family_registers_its_kernels_in_its_own_way():
    from kernel_samples import a_kernel

    ck = a_kernel()
    text = registration_source([ck])
    assert text.splitlines() == [
        f'#include "{ck.name}.hpp"', '#include "ck_tile_kernel.hpp"', "",
        f"TILESEER_CK_KERNEL({ck.name}, CONV_{ck.variant.upper()}, {ck.ndim}, CONV_{ck.dtype.upper()})",
    ]  # fmt: skip
    assert f'#include "{KERNEL.name}.cuh"' in registration_source([KERNEL])
    with pytest.raises(UserError, match="one family at a time"):
        registration_source([ck, KERNEL])
