"""The compiling toolchain, with a compiler that fails on demand (fake_hipcc.py)."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest
from fake_machine import HipMachine
from repository import MI355X, ROOT

from tileseer.build import build, compiler, registration
from tileseer.build import chunk as stage
from tileseer.build import source_trees as trees
from tileseer.build.compiler import first_error
from tileseer.core.errors import UserError
from tileseer.facts.compile import CkSettings, CompileSettings
from tileseer.libraries.ck_tile import api as ck_api
from tileseer.libraries.ck_tile import emit as ck_tile_emit
from tileseer.libraries.registry import tree_of_toolchain

API = ROOT / "config/ck_api.yaml"


@pytest.fixture
def machine(tmp_path):
    return HipMachine(tmp_path)


def test_one_run_compiles_many_kernels_and_reads_their_code(machine):
    results = machine.compile("CODE=1", "CODE=2")
    assert [result.status for result in results] == ["ok", "ok"]
    assert len(machine.runs) == 1
    found = results[0].resources
    assert (found.source, found.vgprs, found.agprs, found.sgprs, found.lds_bytes) == ("code_object", 64, 32, 40, 16384)
    assert (found.code_bytes, found.threads, found.vgpr_spills) == (8, 256, 1)
    assert found.instructions == {"v_mfma_f32_16x16x32_bf16": 1} | dict.fromkeys(
        ("buffer_load_dwordx4", "ds_read_b128", "s_barrier", "s_cbranch_scc1", "s_endpgm"), 1
    )
    assert results[0].code_hash != results[1].code_hash


LOG = """\
In file included from unit.cpp:1:
include/a.hpp:7:3: error: static assertion failed: of one
include/b.hpp:9:1: note: in instantiation of member 'probe_1::Probe' requested here
include/a.hpp:8:3: error: no member named 'x' in 'y'
unit.cpp:3:1: note: in instantiation of 'kentry<probe_3::Probe>' requested here
include/a.hpp:9:3: error: a second one
unit.cpp:3:1: note: in instantiation of 'kentry<probe_3::Probe>' requested here
In file included from unit.cpp:1:
In file included from ./{0}.hpp:22:
include/a.hpp:9:3: error: of the types of a kernel
./{2}.hpp:150:20: note: in instantiation of template class 'Instance<true>' requested here
unit.cpp:2:17: error: no member named 'MakeKernelArgs' in 'probe_2::Probe'
4 errors generated when compiling for gfx950.
"""


def test_an_error_blames_the_kernels_that_it_is_instantiated_for(machine):
    made = machine.units(*"abcd")
    blamed = machine.toolchain().blamed(made, LOG.format(*(unit.kernel.name for unit in made)))
    assert {index: first_error(log) for index, log in blamed.items()} == {
        1: "static assertion failed: of one",
        2: "of the types of a kernel",
        3: "no member named 'x' in 'y'",
    }


def test_an_error_of_the_back_end_blames_the_kernel_of_its_function(machine):
    log = """\
fatal error: error in backend: Cannot select: 0x7f1b219fa4e0: v2i16,ch = AMDGPUISD::BUFFER_ATOMIC_FADD
In function: _ZN7ck_tile6kentryILi2EN8probe_126AddingEJNS_30GroupedConvBwdWeightKernelArgsEEEEvDpT1_
"""
    blamed = machine.toolchain().blamed
    assert list(blamed(machine.units(*"abcdefghijklm"), log)) == [12]
    assert list(blamed(machine.units(*"ab"), log.replace("8probe_126Adding", "7probe_15Probe"))) == [1]


def test_kernels_that_differ_in_name_alone_are_compiled_once_and_fail_alike(machine):
    assert machine.statuses("CODE=1", "CODE=1") == ["ok", "ok"]
    assert [len(run) for run in machine.runs] == [1]
    first, second = machine.compile("FAIL 1", "FAIL 2")
    assert first.error_digest == second.error_digest != ""


def test_a_full_disk_is_no_verdict_on_a_kernel(machine):
    with pytest.raises(UserError, match=r"disk of .* is full.*TMPDIR"):
        machine.compile("FULL")
    assert not list(machine.toolchain().cache.folder.glob("entries/*"))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("clang: error: cannot find ROCm device library; ...", "cannot compile for gfx950: cannot find ROCm"),
        ("unit.cpp:1: fatal error: 'hip/hip_runtime.h' file not found", "gfx950: 'hip/hip_runtime.h'"),
        ("./a.hpp:3: fatal error: 'ck_tile/ops/new.hpp' file not found", "tree has no ck_tile/ops/new.hpp; set ck.ro"),
    ],
)
def test_what_is_wrong_with_compiler_or_tree_is_no_verdict_on_a_kernel(machine, said, message):
    with pytest.raises(UserError, match=message):
        machine.compile("CODE=1", f"SAYS {said}")
    assert machine.statuses("CODE=1") == ["ok"]


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 64 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_disk_that_is_too_small_stops_with_one_message_and_leaves_nothing(machine, small_disk, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    with pytest.raises(UserError, match=r"No space left on device; free space or set TMPDIR"):
        machine.compile("CODE=1", "// long\n" * 20000)
    assert not list(small_disk.iterdir())
    # The sources fit, what the compiler writes does not.
    with pytest.raises(UserError, match=r"disk of .* is full: the compiler cannot write there"):
        machine.compile("CODE=1", "// long\n" * 2000 + "LONG")
    assert not list(small_disk.iterdir())
    assert not list(machine.toolchain().cache.folder.glob("entries/*"))
    assert machine.statuses("CODE=1") == ["ok"]


COMMENTED = """\
/* of two
   lines */
int   f(); // "of a line" \\
              that goes on
const char* text = "// no comment";
#define A B
"""


SHADOW = "shadow/hip/hip_runtime.hpp"
EDITS = {
    "token": lambda machine, patch: machine.write(machine.included, COMMENTED.replace("f()", "g()")),
    "literal": lambda machine, patch: machine.write(machine.included, COMMENTED.replace("// no", "/* no")),
    "end of a directive": lambda machine, patch: machine.write(machine.included, COMMENTED.replace("A B", "A\nB")),
    "HIP's header": lambda machine, patch: machine.write("system/hip/hip_runtime.hpp", ""),
    "device library": lambda machine, patch: machine.write("ocml.bc", "sin 2"),
    "options": lambda machine, patch: patch.setenv("CCC_OVERRIDE_OPTIONS", "+-O1"),
    "include path": lambda machine, patch: patch.setenv(
        "CPLUS_INCLUDE_PATH", str(machine.write(SHADOW, "int shadow();").parents[1])
    ),
    "compiler": lambda machine, patch: machine.write("version", "fake hipcc version 2"),
}


def test_only_what_the_compiler_reads_recompiles_and_the_same_code_stays_the_same_kernel(machine, monkeypatch):
    def kernel_ids():
        machine.forget()
        chunk = machine.units("#include <hip/hip_runtime.hpp>\nCODE=1")
        return build.build_kernels(chunk, [[1]], machine.toolchain())["kernel_id"].to_pylist()

    machine.write(machine.included, 'int f();\nconst char* text = "// no comment";\n#define A B')
    machine.write("system/hip/hip_runtime.hpp", "#define hip 1")
    made = kernel_ids()
    # A header that is not included; comments and white space.
    for name, text in ((machine.other, "int changed;"), (machine.included, COMMENTED)):
        machine.write(name, text)
        assert kernel_ids() == made and len(machine.runs) == 1
    for runs, (what, edit) in enumerate(EDITS.items(), 2):
        edit(machine, monkeypatch)
        assert kernel_ids() == made and len(machine.runs) == runs, what


def test_kernels_beyond_a_limit_are_pruned_with_the_reason(machine, monkeypatch):
    monkeypatch.setattr(build, "MAX_VGPR_SPILLS", 100)
    made = machine.units("CODE=1", "CODE=1 //", "CODE=500")
    rows = build.build_kernels(made, [[1]] * 3, machine.toolchain()).to_pylist()
    assert [row["build_status"] for row in rows] == ["ok", "ok", "pruned"]
    assert rows[2]["build_reason"] == "500 spilled registers, the limit max_vgpr_spills is 100"
    assert rows[2]["vgpr_spills"] == 500


def test_no_compiler_says_where_it_was_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UserError, match=f"no HIP compiler in {tmp_path}/bin/hipcc.*make toolchain.*compile.compiler"):
        compiler.find_compiler(CompileSettings())


def test_a_compiler_that_is_none_is_named(tmp_path):
    with pytest.raises(UserError, match=r"compile\.compiler: .*/hipcc --version does not answer"):
        compiler.find_compiler(CompileSettings(compiler=str(tmp_path / "hipcc")))
    (tmp_path / "g++").write_text("#!/bin/sh\necho 'g++ 12.2.0'\n")
    (tmp_path / "g++").chmod(0o755)
    with pytest.raises(UserError, match=r"g\+\+ is no HIP compiler: its --version prints 'g\+\+ 12.2.0'; install ROCm"):
        compiler.find_compiler(CompileSettings(compiler=str(tmp_path / "g++")))


def test_a_wrong_tree_is_named(tmp_path):
    with pytest.raises(UserError, match=r"ck.root: no Composable .* has the folder include/ck_tile"):
        tree_of_toolchain("hipcc").find(str(tmp_path))
    (tmp_path / "include/ck_tile").mkdir(parents=True)
    with pytest.raises(UserError, match="no Composable Kernel tree of a known level"):
        trees.ck_level(CkSettings(root=str(tmp_path)), API, compiles=True)


@pytest.mark.parametrize("level", ck_api.LEVELS)
def test_the_level_is_seen_in_the_tree(tmp_path, level):
    mark = ck_api.read_api(API, level).detect
    path = tmp_path / "include" / mark.header
    path.parent.mkdir(parents=True)
    path.write_text(f"struct {mark.contains};")
    assert trees.ck_level(CkSettings(root=str(tmp_path)), API, compiles=True) == level
    assert trees.ck_level(CkSettings(root=str(tmp_path)), API, compiles=False) == level
    assert trees.ck_level(CkSettings(root=str(tmp_path), api="2026.06"), API, compiles=True) == "2026.06"


def test_a_kind_that_the_level_lacks_is_unsupported_and_not_compiled(machine):
    kernel = machine.kernels[0]
    kernels = [kernel, replace(kernel, pipeline="wavelet")]
    texts = ck_tile_emit.CkTileEmitter(ROOT / "workflow/templates", API, "2025.11").files(kernels, "gfx950")
    files = {path: text.encode() for path, text in texts.items()} | {f"{kernel.name}.hpp": b"CODE=1"}
    made = build.compile_units(kernels, files, "gfx950", "bundle")
    row = build.build_kernels(made, [[1], [1]], machine.toolchain()).to_pylist()[1]
    assert row["build_status"] == "unsupported_by_ck"
    assert row["build_reason"] == "CK Tile 2025.11: there is no wavelet pipeline"
    assert machine.runs == [[kernel.name]]


def test_a_block_that_does_not_fit_has_no_occupancy(machine):
    blocks_per_cu = machine.toolchain().blocks_per_cu
    assert blocks_per_cu(256, 128, 16384) == 4
    assert blocks_per_cu(256, 128, MI355X.lds_bytes + 1) == 0
    assert blocks_per_cu(1024, 512, 0) == 0


def test_the_fingerprint_follows_compiler_and_tree(machine):
    def found():
        settings = CompileSettings(toolchain="hipcc", compiler=str(machine.compiler))
        return registration.fingerprint(settings, {"ck": str(machine.folder / "ck")})

    first = found()
    assert found() == first
    machine.write(machine.other, "int changed;")
    second = found()
    machine.write("version", "fake hipcc version 2")
    assert len({first, second, found()}) == 3


def test_the_price_is_told_before_compiling(machine, capsys):
    chunk = machine.units("CODE=1", "CODE=2")
    table = build.build_kernels(chunk, [[1], [1]], machine.toolchain(batch=1))
    assert "compile: 2 kernels in 2 units, estimated 0.0028 CPU hours" in capsys.readouterr().err
    assert stage.describe_build(table) == "2 of 2 kernels can be used"
    build.build_kernels(chunk, [[1], [1]], machine.toolchain())
    assert "compile:" not in capsys.readouterr().err
