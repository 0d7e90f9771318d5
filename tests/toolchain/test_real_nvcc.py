"""Emitted CUTLASS kernels compile for real and become a library, whose host code runs without a GPU.

Where there is no compiler the tests are skipped, except under TILESEER_NEEDS_NVCC (as .ci/run sets it).
Results are kept in the user's cache, so a second run takes seconds.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from published_models import train_on_recording
from repository import H200, ROOT

from tileseer.build import compiler, reading
from tileseer.build import source_trees as trees
from tileseer.build.base import CompileUnit
from tileseer.build.modules import Libraries
from tileseer.build.nvcc import NvccToolchain
from tileseer.build.source_trees import HeaderTree, tree_of
from tileseer.core.cache import Cache, default_folder
from tileseer.core.errors import UserError
from tileseer.facts.compile import CompileSettings
from tileseer.libraries.cutlass import emit
from tileseer.libraries.cutlass.kernel import CutlassKernel, shared_bytes
from tileseer.libraries.registry import check_support
from tileseer.measure.harness import abi
from tileseer.measure.harness.process import Worker
from tileseer.measure.harness.supervisor import problem_numbers
from tileseer.problems import problem, problem_sets
from tileseer.problems.operation import Operation
from tileseer.serve import shipped_project

parse, frame = CutlassKernel.parse, CutlassKernel.frame
SETTINGS = CompileSettings(toolchain="nvcc", timeout_seconds=900)
NAMES = (
    "cutlass_conv_fwd_bf16_nhwc_2d_optimized_64x64x32_2x2x1_16x8x16_s4_swz1_vec4_4_4",
    "cutlass_conv_fwd_fp16_nhwc_2d_analytic_64x64x64_2x2x1_16x8x16_s3_swz1_vec8_8_8_multiplegroup",
)


def emitter():
    return emit.CutlassEmitter(ROOT / "workflow/templates", ROOT)


@pytest.fixture(scope="module")
def machine():
    """Compiler and tree of this machine."""
    try:
        return compiler.find_compiler(SETTINGS), tree_of("nvcc", {"cutlass": None})
    except UserError as error:
        if "TILESEER_NEEDS_NVCC" in os.environ:
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def libraries(machine, tmp_path_factory):
    """Units, results, and the paths of driver and module."""
    found, tree = machine
    units = [CompileUnit(parse(name), "sm_90", emitter().header(parse(name), "sm_90").encode()) for name in NAMES]
    cache, native = Cache(default_folder(), 20 << 30), ROOT / "workflow/native"
    results = NvccToolchain(found, tree, SETTINGS, cache, native, H200).compile(units)
    made = Libraries(found, tree, SETTINGS, cache, native)
    folder = tmp_path_factory.mktemp("libraries")
    (folder / "driver.so").write_bytes(made.driver("sm_90"))
    (folder / "module.so").write_bytes(made.module(units))
    # The CUDA runtime is where the compiler is, if it is installed nowhere else.
    places = [found.path.parent.parent / name for name in ("lib", "lib64")]
    environment = {"LD_LIBRARY_PATH": os.pathsep.join(map(str, places))}
    return results, (str(folder / "driver.so"), str(folder / "module.so")), environment


def test_keys_are_made_from_what_the_preprocessor_reads(machine, tmp_path, monkeypatch):
    """Keys alone: the tree is linked file by file, and one header is edited."""
    found, tree = machine
    include = tmp_path / "include"
    shutil.copytree(tree.include, include, copy_function=os.symlink)
    header = include / "cutlass/conv/convolution.h"
    original = header.read_text()
    header.unlink()
    unit = CompileUnit(parse(NAMES[0]), "sm_90", emitter().header(parse(NAMES[0]), "sm_90").encode())
    # What counts where the preprocessor fails: it must not.
    monkeypatch.delattr(HeaderTree, "digest")

    def key(text):
        header.write_text(text)
        for known in (trees.content_digest, reading._digest):
            known.cache_clear()
        linked = HeaderTree(include, tree.folder)
        return NvccToolchain(found, linked, SETTINGS, Cache(tmp_path, 0), ROOT / "workflow/native", H200).key(unit)

    before = key(original)
    assert key(original + "\n// a comment\n") == before
    assert key(original + "\nstruct AnotherToken;\n") != before
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-DSOMETHING")
    assert key(original) != before


def test_kernels_compile_and_what_they_take_is_read(libraries):
    for name, result in zip(NAMES, libraries[0], strict=True):
        assert (result.status, result.reason) == ("ok", ""), result.log
        r = result.resources
        assert r.threads == 128
        # At least the operand buffers of all stages.
        assert r.lds_bytes >= shared_bytes(vars(parse(name)))
        assert 32 < r.vgprs <= 255
        assert r.occupancy >= 1
        assert len(result.code_hash) == 16


def test_the_library_agrees_with_our_rules_without_a_gpu(libraries):
    _, paths, environment = libraries
    operation = Operation("forward", "bf16")
    drawn = problem_sets.generate_problems(ROOT / "config/problems/training.yaml", operation, (2, 3), 1)
    problems = [entry.problem for entry in drawn][::8]
    table = problem.problem_frame(problems)
    able = []
    with Worker(environment) as worker:
        for one in problems:
            request = {"do": "supporting", "problem": problem_numbers(vars(one), "forward", 1)}
            answer = worker.ask(request | {"libraries": paths}, 60)
            assert answer["code"] == abi.OK, answer
            able.append(answer["kernels"])
        device = worker.ask({"do": "device", "libraries": paths}, 60)
    assert set().union(*able) == set(NAMES)
    for name in NAMES:
        # The library does not ask for the data type: it gets addresses.
        pool = frame([parse(name)]).assign(split_k=1, dtype="bf16")
        ours = check_support(table, pool, "forward")[:, 0] == 0
        theirs = [name in kernels for kernels in able]
        assert ours.tolist() == theirs
        assert any(theirs) and not all(theirs)
    assert device["code"] in (abi.OK, abi.DEVICE_FAULT)
    assert device["backend"] == "cuda"


def test_a_shipped_kernel_becomes_a_program(machine, tmp_path):
    """What ``tileseer ship`` writes is built; without a GPU the program says so."""
    if shutil.which("cmake") is None and "CI" not in os.environ:
        pytest.skip("no cmake; on Debian: apt-get install cmake")
    recording = "sm_90_h200", "forward_bf16", 16, "sm_90"
    data, trained = train_on_recording(tmp_path / "data.parquet", *recording, features="cutlass")
    name = "cutlass_conv_fwd_bf16_nhwc_2d_optimized_64x64x32_2x2x1_16x8x16_s4_swz1_vec8_8_1"
    model = trained.model.with_pool((trained.model.pool["kernel"] == name).to_numpy())
    project, build = tmp_path / "project", tmp_path / "build"
    emitter = shipped_project.emitter_of("sm_90", "")
    shipped_project.write_selector(project / "forward_bf16", data, model)
    shipped_project.write_project(project, "sm_90", {"forward_bf16": (model, {})}, emitter)
    found, tree = machine
    options = f"-DTILESEER_NVCC={found.path}", f"-DCUTLASS_ROOT={tree.include.parent}"
    for words in (("-S", project, "-B", build, *options), ("--build", build)):
        run = subprocess.run(["cmake", *map(str, words)], capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    run = subprocess.run(
        [build / "main"], capture_output=True, text=True, check=False, env={"CUDA_VISIBLE_DEVICES": ""}
    )
    assert run.returncode == 1 and "cannot allocate memory" in run.stderr
