"""Emitted C++ parses and instantiates against stand-in headers (ck_stand_in/README.md), not the real library."""

import itertools
import subprocess
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pytest
from host_library import COMPILER
from kernel_samples import a_kernel
from repository import ROOT

from tileseer.facts.operations import DTYPES, VARIANTS
from tileseer.libraries.ck_tile.depthwise import DepthwiseConfig
from tileseer.libraries.ck_tile.emit import CkTileEmitter
from tileseer.libraries.ck_tile.kernel import LAYOUTS_OF_NDIM, PIPELINES

STAND_IN = Path(__file__).parent / "ck_stand_in"
FLAGS = ("-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror")
EMITTER = CkTileEmitter(ROOT / "workflow/templates", ROOT / "config/ck_api.yaml")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no host C++ compiler (g++, clang++ or CXX)")

FORWARD = a_kernel()
WEIGHT = replace(FORWARD, variant="bwd_weight")
SPECIAL = (
    replace(FORWARD, num_groups_to_merge=8, dtype="fp16"),
    replace(FORWARD, split_image=True, specialization="filter3x3"),
    replace(FORWARD, dtype="fp32", pad_k=False, specialization="filter1x1_pad0"),
    replace(FORWARD, epilogue="default", pipeline="mem", scheduler="interwave"),
    replace(WEIGHT, epilogue="default", two_stage=True),
    replace(WEIGHT, two_stage=True, num_groups_to_merge=4, layout="ndhwgc", ndim=3),
    replace(WEIGHT, two_stage=True, explicit_gemm=True, specialization="filter1x1_stride1_pad0"),
    replace(WEIGHT, streamk="tree", pipeline="mem"),
    replace(WEIGHT, streamk="linear", streamk_persistent=True, layout="ndhwgc", ndim=3, double_smem_buffer=True),
)

DEPTHWISE = [DepthwiseConfig(dtype, 16, 16, 3, 2, 2, 1, 4, 2, 8, 8) for dtype in DTYPES]


def every_pipeline():
    for variant, pipeline, ndim in itertools.product(VARIANTS, PIPELINES, LAYOUTS_OF_NDIM):
        if (pipeline, variant) not in {("compv5", "bwd_data"), ("compv5", "bwd_weight")}:
            yield replace(FORWARD, variant=variant, pipeline=pipeline, ndim=ndim, layout=LAYOUTS_OF_NDIM[ndim][0])


def errors_of(source, folder):
    command = [COMPILER, *FLAGS, "-isystem", STAND_IN, "-I", folder, source]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def write(texts, folder):
    for path, text in texts.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


@pytest.mark.parametrize("kernel", [FORWARD, SPECIAL[7], DEPTHWISE[0]], ids=attrgetter("name"))
def test_unit_stands_alone(kernel, tmp_path):
    write(EMITTER.files([kernel], "gfx950"), tmp_path)
    assert errors_of(tmp_path / f"{kernel.name}.cpp", tmp_path) == ""


def test_wrong_argument_list_is_noticed(tmp_path):
    write(EMITTER.files([FORWARD], "gfx950"), tmp_path)
    header = tmp_path / f"{FORWARD.name}.hpp"
    header.write_text(header.read_text().replace("Fixed::UseStructuredSparsity,", "", 1))
    assert "template argument" in errors_of(tmp_path / f"{FORWARD.name}.cpp", tmp_path)


@pytest.mark.parametrize("kernels", [[*every_pipeline(), *SPECIAL, *DEPTHWISE], []], ids=["all kinds", "none"])
def test_kernels_and_their_registration_compile_in_one_unit(kernels, tmp_path):
    assert len({kernel.name for kernel in kernels}) == len(kernels)
    write(EMITTER.files(kernels, "gfx950") if kernels else {}, tmp_path)
    collections = EMITTER.collection_files(kernels, "gfx950")
    write(collections, tmp_path)
    unit = tmp_path / "all.cpp"
    # A source and then a header that it has included.
    paths = sorted(collections, key=lambda path: path.endswith(".hpp"))
    unit.write_text("".join(f'#include "{path}"\n' for path in paths))
    assert errors_of(unit, tmp_path) == ""


@pytest.mark.parametrize("kernel", [FORWARD, DEPTHWISE[1]], ids=attrgetter("name"))
def test_single_kernel_unit_has_the_global_aliases(kernel, tmp_path):
    write(EMITTER.files([kernel], "gfx950"), tmp_path)
    unit = tmp_path / "single.cpp"
    unit.write_text(
        "#define CK_TILE_SINGLE_KERNEL_INCLUDE\n"
        f'#include "{kernel.name}.hpp"\n'
        "static_assert(sizeof(SelectedConvKernelLauncher::Kernel) > 0);\n"
        "static_assert(CONV_FWD_KERNEL_NAME[0] == 'g');\n"
    )
    assert errors_of(unit, tmp_path) == ""
