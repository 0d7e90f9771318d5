"""The C interface: layout of its structs, its codes, and the numbers of its reference convolutions."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess

import numpy as np
import pytest
from host_library import COMPILER, INCLUDE, compiled

from tileseer.build import modules
from tileseer.facts.benchmark import Timing
from tileseer.facts.operations import VARIANTS
from tileseer.measure.harness import abi
from tileseer.measure.harness.supervisor import launch_options

STRUCTS = {
    f"{struct.__name__}C": struct for struct in ctypes.Structure.__subclasses__() if struct.__module__ == abi.__name__
}
# N, G, C, K, extents, filter, strides, pads, dilations: uneven everywhere.
SHAPES = (
    (2, 2, 4, 6, 1, 7, 6, 1, 3, 2, 1, 2, 1, 0, 1, 0, 1, 1, 2),
    (1, 1, 3, 2, 4, 5, 6, 3, 1, 3, 2, 1, 3, 1, 0, 2, 1, 1, 1),
)


@pytest.fixture(scope="module")
def library(libraries):
    driver = abi.DriverLibrary(libraries[0])
    driver.load_module(libraries[1])
    return driver


def test_the_structs_are_those_of_the_header(tmp_path):
    assert ctypes.sizeof(abi.ConvProblem) == 84
    checks = [
        f'_Static_assert(sizeof({name}) == {ctypes.sizeof(struct)}, "{name}");\n'
        + "".join(
            f'_Static_assert(offsetof({name}, {field}) == {getattr(struct, field).offset}, "{name}.{field}");\n'
            for field, _ in struct._fields_
        )
        for name, struct in STRUCTS.items()
    ]
    source = tmp_path / "layout.c"
    source.write_text('#include <stddef.h>\n#include "tileseer_conv.h"\n' + "".join(checks))
    command = [COMPILER, "-x", "c", "-std=c11", "-fsyntax-only", "-Wall", "-Werror", "-I", INCLUDE, source]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def geometry(shape, direction):
    """Return (extent, output, taps, stride, pad, dilation) by axis, and the shapes of both operands and the result."""
    n, g, c, k, *axes = shape
    extent, taps, stride, pad, dilation = (axes[i : i + 3] for i in range(0, 15, 3))
    spans = [extent[i] + 2 * pad[i] - dilation[i] * (taps[i] - 1) - 1 for i in range(3)]
    out = [span // step + 1 for span, step in zip(spans, stride, strict=True)]
    shapes = {"x": (n, *extent, g, c // g), "w": (g, k // g, *taps, c // g), "y": (n, *out, g, k // g)}
    ends = {"forward": "xwy", "bwd_data": "ywx", "bwd_weight": "xyw"}[direction]
    return (extent, out, taps, stride, pad, dilation), {name: shapes[name] for name in ends}


def convolution(a, b, shape, direction):
    """Compute a result with loops over taps, the way a textbook has it, in fp64."""
    (extent, out, taps, stride, pad, dilation), shapes = geometry(shape, direction)
    tensors = {name: np.array(v, np.float64).reshape(shapes[name]) for name, v in zip(shapes, (a, b), strict=False)}
    result = tensors.setdefault(list(shapes)[2], np.zeros(list(shapes.values())[2]))
    for tap in itertools.product(*(range(t) for t in taps)):
        for o in itertools.product(*(range(e) for e in out)):
            i = [o[axis] * stride[axis] - pad[axis] + tap[axis] * dilation[axis] for axis in range(3)]
            if any(not 0 <= i[axis] < extent[axis] for axis in range(3)):
                continue
            at_x, at_y, at_w = (slice(None), *i), (slice(None), *o), (slice(None), slice(None), *tap)
            if direction == "forward":
                result[at_y] += np.einsum("ngc,gkc->ngk", tensors["x"][at_x], tensors["w"][at_w])
            elif direction == "bwd_data":
                result[at_x] += np.einsum("ngk,gkc->ngc", tensors["y"][at_y], tensors["w"][at_w])
            else:
                result[at_w] += np.einsum("ngc,ngk->gkc", tensors["x"][at_x], tensors["y"][at_y])
    return result


@pytest.mark.parametrize("direction", VARIANTS)
@pytest.mark.parametrize("shape", SHAPES, ids=["2d", "3d"])
def test_the_reference_is_the_convolution(library, direction, shape):
    problem = abi.ConvProblem(*shape, VARIANTS.index(direction), 1)
    generator = np.random.default_rng(1)
    sizes = [int(np.prod(lengths)) for lengths in geometry(shape, direction)[1].values()]
    a, b = (generator.uniform(-1, 1, size).astype(np.float32) for size in sizes[:2])
    c = np.full(sizes[2], np.nan, np.float32)
    milliseconds = library.run(a.ctypes.data, b.ctypes.data, c.ctypes.data, ctypes.byref(problem), None)
    assert milliseconds == pytest.approx(0.01, rel=0.02), library.error()
    np.testing.assert_allclose(c, convolution(a, b, shape, direction).ravel(), rtol=1e-5, atol=1e-6)


def test_codes_and_their_texts(library):
    good = abi.ConvProblem(*SHAPES[0], 0, 1)
    wide = abi.ConvProblem(1, 1, 128, 8, *SHAPES[0][4:], 0, 1)
    sideways = abi.ConvProblem(*SHAPES[0], 7, 1)
    memory = (ctypes.c_float * 10_000)()
    address = ctypes.addressof(memory)
    assert library.is_supported(ctypes.byref(good)) == 1
    assert library.is_supported(ctypes.byref(wide)) == 0
    assert library.is_supported(None) == library.is_supported(ctypes.byref(sideways)) == abi.BAD_ARGUMENT
    assert library.run(address, address, None, ctypes.byref(good), None) == abi.BAD_ARGUMENT
    assert library.error() == "c is a null pointer"
    assert library.run(address, address, address, ctypes.byref(wide), None) == abi.UNSUPPORTED
    assert library.error() == "C is above 64"
    assert library.find_kernel(b"absent") == abi.NO_KERNEL
    assert (library.has_kernels(), library.has_bwd_data(), library.has_bwd_weight()) == (1, 1, 1)
    assert library.version().startswith(b"2.0.0+") and library.backend() == b"host"
    small = ctypes.create_string_buffer(4)
    assert library.get_kernel_name(0, small, 4) == abi.BAD_ARGUMENT, "a name is never cut"
    assert library.get_kernel_name(99, small, 4) == abi.BAD_ARGUMENT
    assert library.workspace_bytes(library.find_kernel(b"good_bwd_weight"), ctypes.byref(good)) == 128


def test_a_kernel_of_one_dimension_refuses_every_problem(library):
    problem, options = abi.ConvProblem(*SHAPES[0], 0, 1), abi.ConvOptions(**launch_options(Timing()))
    line = library.find_kernel(b"line")
    check = abi.ConvCheck()
    assert library.supports(line, ctypes.byref(problem)) == 0
    code = library.verify(line, ctypes.byref(problem), ctypes.byref(options), ctypes.byref(check))
    assert code == abi.UNSUPPORTED and library.error() == "this interface has no problems of one dimension"


def copied(path, folder):
    """Driver of a copy: for the loader another library."""
    folder.mkdir()
    return abi.DriverLibrary(shutil.copy(path, folder))


def run_once(driver):
    """Milliseconds that the first kernel takes, in the driver's own time."""
    memory = (ctypes.c_float * 100)()
    problem = abi.ConvProblem(1, 1, 1, 1, *[1] * 9, 0, 0, 0, 1, 1, 1, 0, 1)
    return driver.run(memory, memory, memory, ctypes.byref(problem), None)


@pytest.mark.parametrize("beside", [ctypes.RTLD_LOCAL, ctypes.RTLD_GLOBAL], ids=["local", "global"])
def test_a_module_registers_with_the_driver_that_it_is_handed_to(libraries, tmp_path, beside):
    # What somebody else has loaded before, all its symbols visible, has no part in it.
    ctypes.CDLL(shutil.copy(libraries[0], tmp_path / "earlier.so"), beside)
    first, second, third = (copied(libraries[0], tmp_path / name) for name in ("first", "second", "third"))
    second.load_module(libraries[1])
    names = second.kernels()
    assert "good" in names and first.kernels() == third.kernels() == []
    for _ in range(2):
        first.load_module(libraries[1])
    assert first.kernels() == second.kernels() == names and third.kernels() == [], "each kernel once"
    for driver in (first, second):
        assert run_once(driver) == pytest.approx(0.01, rel=0.02), driver.error()
    assert run_once(third) == abi.NO_KERNEL


def test_a_library_without_kernels_is_refused(tmp_path):
    (tmp_path / "other.cpp").write_text("int nothing() { return 0; }\n")
    other = compiled(tmp_path / "other.cpp", tmp_path / "other.so")
    driver = abi.DriverLibrary(compiled(INCLUDE / modules.DRIVER_SOURCE, tmp_path / "driver.so"))
    with pytest.raises(OSError, match=r"other\.so: the library has no kernels for this driver; build it again"):
        driver.load_module(other)


def test_a_library_of_another_version_is_refused(tmp_path):
    source = tmp_path / "old.cpp"
    text = (INCLUDE / modules.DRIVER_SOURCE).read_text()
    source.write_text(text.replace("return CONV_ABI_VERSION;", "return 0;"))
    modules.run_command(modules.library_command("host", COMPILER, "", [source], tmp_path / "old.so", INCLUDE))
    with pytest.raises(OSError, match="version 0 of the interface"):
        abi.DriverLibrary(str(tmp_path / "old.so"))
