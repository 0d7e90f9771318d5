"""The measuring driver and a library of emitted kernels are built by hipcc; its host code runs with no GPU."""

from __future__ import annotations

import ctypes
import io
import os
import subprocess

import pytest
from elftools.elf.elffile import ELFFile
from repository import ROOT

from tileseer.measure.harness import abi

NATIVE = ROOT / "workflow/native"
FORWARD = "grouped_conv_fwd_bf16_nhwgc_2d_compv3_cshuffle_intrawave_64x64x64_4x1x1_16x16x16"
WEIGHT = "grouped_conv_bwd_weight_bf16_nhwgc_2d_compv3_cshuffle_intrawave_64x64x64_4x1x1_16x16x16_2stage"
HOST_PASS = ("-fPIC", "-shared", "-D__HIP_PLATFORM_AMD__", "--cuda-host-only")


class Kernel(ctypes.Structure):
    """``ConvKernelC``."""

    _P = ctypes.POINTER(abi.ConvProblem)
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("direction", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("supports", ctypes.CFUNCTYPE(ctypes.c_int, _P, ctypes.c_char_p, ctypes.c_int)),
        ("workspace_bytes", ctypes.CFUNCTYPE(ctypes.c_int64, _P)),
        (
            "launch",
            ctypes.CFUNCTYPE(ctypes.c_int, _P, *[ctypes.c_void_p] * 5, ctypes.c_char_p, ctypes.c_int),
        ),
        ("resources", ctypes.c_void_p),
    )


@pytest.fixture(scope="module")
def units(hip):
    return hip.units([FORWARD, WEIGHT])


@pytest.fixture(scope="module")
def kernels(hip, units, tmp_path_factory):
    """What a library of two kernels registers, and the stand-in that counts their launches.

    The objects are those of the libraries stage, host and device code; only the runtime is another one.
    """
    folder = tmp_path_factory.mktemp("module")
    objects = []
    for number, content in enumerate(hip.libraries.objects(units)):
        objects.append(folder / f"{number}.o")
        objects[-1].write_bytes(content)
    run([hip.compiler.path, "-O1", *HOST_PASS, NATIVE / "hip_stand_in.cpp", "-o", folder / "stand_in.so"])
    own = folder / "stand_in.so"
    run([hip.compiler.path, "-shared", "-fPIC", "-x", "none", *objects, own, "-o", folder / "module.so"])
    stand_in = ctypes.CDLL(str(folder / "stand_in.so"))
    # Its own library before those that other tests have loaded: they have functions of the same names.
    module = ctypes.CDLL(str(folder / "module.so"), os.RTLD_NOW | os.RTLD_DEEPBIND)
    registered = []
    add = ctypes.CFUNCTYPE(None, ctypes.POINTER(Kernel))(lambda kernel: registered.append(kernel.contents))
    module.tileseer_register_kernels(add)
    # In the order of their names.
    weight, forward = registered
    return [forward, weight], stand_in


def run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def problem(direction, **dims):
    values = dict.fromkeys(abi.PROBLEM_DIMS, 1) | {"pad_d": 0, "pad_h": 1, "pad_w": 1, "filter_y": 3, "filter_x": 3}
    return abi.ConvProblem(
        **values | {"N": 2, "C": 64, "K": 64, "input_h": 14, "input_w": 14} | dims, direction=direction, split_k=1
    )


def test_driver_and_module_are_libraries_with_code_for_the_gpu(hip, units):
    module = hip.libraries.module(units)
    for content in (hip.libraries.driver("gfx950"), module):
        sections = {section.name for section in ELFFile(io.BytesIO(content)).iter_sections()}
        assert ".hip_fatbin" in sections
        assert b"amdgcn-amd-amdhsa--gfx950" in content
    assert FORWARD.encode() in module and WEIGHT.encode() in module


def test_a_module_registers_its_kernels_and_they_check_their_arguments(kernels):
    (forward, weight), _ = kernels
    assert [k.name.decode() for k in (forward, weight)] == [FORWARD, WEIGHT]
    assert [(k.direction, k.ndim, k.dtype) for k in (forward, weight)] == [(0, 2, 1), (2, 2, 1)]
    why = ctypes.create_string_buffer(200)
    assert forward.supports(problem(0), why, 200) == 1
    # Three channels do not fill the vectors of the loads.
    assert forward.supports(problem(0, C=3), why, 200) == 0
    assert b"argument check" in why.value
    assert forward.workspace_bytes(problem(0)) == 0
    # An fp32 copy of the weight gradient: K x Y x X x C.
    assert weight.workspace_bytes(problem(2)) == 64 * 9 * 64 * 4


def test_a_launch_has_the_grid_of_the_implicit_gemm(kernels):
    (forward, weight), stand_in = kernels
    why = ctypes.create_string_buffer(200)
    memory = ctypes.create_string_buffer(1 << 20)
    address = ctypes.addressof(memory)
    sizes = (ctypes.c_uint * 6)()

    def launch(kernel, problem):
        before = stand_in.tileseer_stand_in_launches()
        code = kernel.launch(problem, address, address, address, address, None, why, 200)
        stand_in.tileseer_stand_in_last(sizes)
        return code, stand_in.tileseer_stand_in_launches() - before, list(sizes)

    # 2 x 14 x 14 rows of 64 columns in tiles of 64 x 64; four waves of 64 lanes.
    assert launch(forward, problem(0)) == (0, 1, [7, 1, 1, 256, 1, 1])
    # G is the second dimension of the grid.
    assert launch(forward, problem(0, G=4, C=256, K=256))[2][:2] == [7, 4]
    code, launches, _ = launch(weight, problem(2))
    assert (code, launches) == (0, 2), "the second stage converts to bf16"
    assert launch(forward, problem(0, C=3))[:2] == (abi.UNSUPPORTED, 0)
    assert b"unsupported convolution" in why.value
