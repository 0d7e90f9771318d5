"""The project of ``tileseer ship`` is built by the real compiler, and its program runs on the emulated GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import learning_samples as samples
import pytest
from published_models import publish_results
from test_hip_modules import FORWARD, WEIGHT

from tileseer.cli import main
from tileseer.core import cache
from tileseer.libraries.ck_tile.kernel import parse

DATA = FORWARD.replace("_fwd_", "_bwd_data_")
OWN = """
#include "tileseer/convolution.hpp"
#include "forward_bf16/selector.hpp"
#include <cstdio>
#include <thread>

namespace bwd_data_bf16 { void convolve() {} } // a name of the user's own

template <typename Call>
void fails(tileseer::Fault fault, const Call& call)
{
    try
    {
        call();
        std::puts("nothing failed");
    }
    catch(const tileseer::Error& error)
    {
        std::printf("%s %s\\n", error.fault == fault ? "right:" : "wrong:", error.what());
    }
}

int main()
{
    tileseer::Problem problem;
    problem.C = problem.K = 16, problem.Hi = problem.Wi = 5;
    char x[1];
    namespace weight = tileseer::bwd_weight_bf16;
    const std::size_t bytes = weight::workspace_bytes(problem);
    std::printf("%zu bytes\\n", bytes);
    fails(tileseer::Fault::workspace, [&] { weight::convolve(problem, x, x, x); });
    fails(tileseer::Fault::workspace, [&] { weight::convolve(problem, x, x, x, {x, bytes - 1}); });
    fails(tileseer::Fault::bad_argument, [&] { tileseer::forward_bf16::convolve(problem, x, nullptr, x); });
    problem.C = 15, problem.G = 2;
    fails(tileseer::Fault::unsupported, [&] { tileseer::forward_bf16::convolve(problem, x, x, x); });
    problem.G = 1;
    fails(tileseer::Fault::unsupported, [&] { tileseer::bwd_data_bf16::choice(problem); });
    problem.C = 32;
    const char* kernels[4] = {};
    std::thread threads[4];
    for(int i = 0; i < 4; ++i)
        threads[i] = std::thread([&, i] { kernels[i] = tileseer::forward_bf16::choice(problem).kernel; });
    for(std::thread& thread : threads)
        thread.join();
    tileseer::forward_bf16_gfx950::Selector selector;
    tileseer::forward_bf16_gfx950::Problem same;
    same.C = 32, same.K = 16, same.Hi = same.Wi = 5;
    const std::string picked = selector.select(same).candidate->kernel;
    std::puts(picked == kernels[0] && picked == kernels[3] ? "same pick" : "another pick");
}
"""
USE = """
cmake_minimum_required(VERSION 3.21)
project(own LANGUAGES CXX)
add_subdirectory("${SHIPPED}" shipped)
find_package(Threads REQUIRED)
add_executable(own own.cpp)
target_include_directories(own PRIVATE "${SHIPPED}")
target_link_libraries(own PRIVATE tileseer_convolution Threads::Threads)
"""


def small_world(name):
    """2D problems that one kernel runs, with its times; a second kernel makes it a choice."""
    kernel = parse(name)
    problems = samples.problems(kernel.variant, 60)
    problems = problems[problems["ndim"] == 2].reset_index(drop=True)
    other = parse(name.replace("64x64x64_4x1x1", "16x64x64_1x4x1"))
    # The two-stage kernel refuses split-K, which the model's rules let pass.
    splits = (1, 2) if kernel.two_stage else (1,)
    return samples.timed(problems, samples.candidates([kernel, other], splits), f"{kernel.variant}_bf16")


@pytest.fixture(scope="module")
def shipped(hip, tmp_path_factory):
    """The project, one kernel per direction, in a folder with a space in its name."""
    folder = tmp_path_factory.mktemp("a project")
    models = publish_results(folder / "results", [small_world(name) for name in (FORWARD, DATA, WEIGHT)])
    words = ["ship", models, "--max-kernels", "3", "--ck-api", hip.level, "--output", folder / "shipped"]
    assert main.main([*map(str, words)]) == 0
    return folder / "shipped"


def cmake(*words):
    if shutil.which("cmake") is None and "CI" not in os.environ:
        pytest.skip("no cmake; on Debian: apt-get install cmake")
    run = subprocess.run(["cmake", *map(str, words)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]


def configure(hip, source, build, *words):
    root = hip.tree.include.parent
    compiler = f"-DTILESEER_HIPCC={hip.compiler.path}"
    cmake("-S", source, "-B", build, "-DTILESEER_EMULATED=ON", f"-DCK_ROOT={root}", compiler, *words)


@pytest.fixture(scope="module")
def built(hip, shipped):
    """The build folder; the kernels' objects are kept in the cache."""
    build = shipped.with_name("the build")
    configure(hip, shipped, build)
    read = "launcher.hpp", "tileseer_conv.h", "kernel.hpp", "ck_tile_kernel.hpp"
    sources = [path.read_bytes() for path in (shipped / "CMakeLists.txt", *(shipped / "src" / name for name in read))]
    store, keys = hip.cache, {}
    for name in (shipped / "kernels.txt").read_text().split():
        own = [(shipped / "kernels" / f"{name}{suffix}").read_bytes() for suffix in (".hpp", ".cpp")]
        keys[name] = cache.key("shipped object", hip.compiler.version, hip.tree.digest(), *sources, *own)
    for name, key in keys.items():
        if content := store.get(key):
            (build / "kernels" / f"{name}.o").write_bytes(content)
    cmake("--build", build, "--parallel", "2")
    for name, key in keys.items():
        store.put(key, (build / "kernels" / f"{name}.o").read_bytes())
    return build


def emulated(*words):
    command = [sys.executable, "-m", "amdgpu_emulator", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_from_main_to_the_result(shipped, built):
    run = emulated(built / "main")
    lines = run.stdout.splitlines()
    assert run.returncode == 0 and len(lines) == 3, run.stdout + run.stderr
    for name in (shipped / "kernels.txt").read_text().split():
        (line,) = (line for line in lines if f" {name}@" in line)
        assert line.startswith("OK ") and " 0 of " in line


def test_another_layer_an_unknown_one_and_a_program_without_a_gpu(built):
    run = emulated(built / "main", "C=16", "K=16", "Hi=5", "Wi=5", "G=2", "verify=3")
    assert run.returncode == 0 and run.stdout.count("OK ") == 3, run.stdout + run.stderr
    run = emulated(built / "main", "C=15", "Hi=5", "Wi=5")
    assert run.returncode == 1 and run.stderr.count("no kernel of this folder runs it") == 3
    assert emulated(built / "main", "c=15").returncode == 2
    run = subprocess.run([built / "main"], capture_output=True, text=True, check=False)
    assert run.returncode == 1 and "run it with python -m amdgpu_emulator" in run.stderr


def test_a_program_of_ones_own(hip, shipped, built, tmp_path):
    (tmp_path / "own.cpp").write_text(OWN)
    (tmp_path / "CMakeLists.txt").write_text(USE)
    build = tmp_path / "build"
    configure(hip, tmp_path, build, f"-DSHIPPED={shipped}")
    for path in (built / "kernels").glob("*.o"):
        shutil.copyfile(path, build / "shipped/kernels" / path.name)
    cmake("--build", build, "--parallel", "2")
    run = emulated(build / "own")
    assert run.returncode == 0, run.stderr
    assert not any(line.startswith(("wrong", "nothing", "another")) for line in run.stdout.splitlines()), run.stdout
    assert run.stdout.count("right:") == 5 and "same pick" in run.stdout and "C=15,K=16" in run.stdout


def test_the_program_fails_where_a_kernel_is_wrong(shipped, built, hip, tmp_path):
    """The output of a launcher that writes nothing is not taken for a result."""
    source, build = tmp_path / "source", tmp_path / "build"
    shutil.copytree(shipped, source)
    operation = source / "src/dispatcher.cpp"
    text = operation.read_text()
    assert "candidate.kernel->launch(" in text
    operation.write_text(
        text.replace("candidate.kernel->launch(", "if(direction_ != CONV_FORWARD) candidate.kernel->launch(")
    )
    configure(hip, source, build)
    for path in (built / "kernels").glob("*.o"):
        shutil.copyfile(path, build / "kernels" / path.name)
    cmake("--build", build, "--parallel", "2")
    run = emulated(build / "main", "C=16", "K=16", "Hi=5", "Wi=5")
    assert run.returncode == 1 and run.stdout.count("OK ") == 2 and "WRONG  forward_bf16     400 of 400" in run.stdout


def test_a_tree_of_headers_that_does_not_fit_is_named(hip, shipped, tmp_path):
    def fails(root, message):
        words = ["cmake", "-S", shipped, "-B", tmp_path / "build", f"-DCK_ROOT={root}", "-DTILESEER_EMULATED=ON",
                 f"-DTILESEER_HIPCC={hip.compiler.path}"]  # fmt: skip
        run = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)
        assert run.returncode and message in " ".join(run.stderr.split()), run.stderr

    tree = tmp_path / "older"
    (tree / "include/ck_tile").mkdir(parents=True)
    (tree / "include/ck_tile/core.hpp").touch()
    fails(tree, f"{tree}: no ck_tile headers")
    header = "include/ck_tile/ops/grouped_convolution/pipeline/grouped_conv_universal_pipeline_ag_bg_cr_policy.hpp"
    newer = Path(shutil.copytree(tree, tmp_path / "newer")) / header
    newer.parent.mkdir(parents=True)
    newer.write_text("struct GroupedConvUniversalPipelineAgBgCrPolicy;")
    fails(tmp_path / "newer", "`tileseer ship --ck-api 2026.06`")
