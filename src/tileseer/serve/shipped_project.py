"""What ``tileseer ship`` writes: what picks among the kernels and, where they are compiled, a CMake project of them.

The project has kernels, one header and a test program. Its texts are templates of ``workflow/templates/shipped``;
launchers and reference are those of the measuring driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tileseer.build import compiler
from tileseer.core import places
from tileseer.core.atomic import write_text
from tileseer.core.reading import read_utf8
from tileseer.core.templates import fill_cpp_template, fill_template
from tileseer.data.dataset import Dataset
from tileseer.facts.hardware import target
from tileseer.learn import model_files
from tileseer.learn.model import Model
from tileseer.libraries.emitter import Emitter
from tileseer.libraries.gemm_kernel import Kernel
from tileseer.libraries.registry import library_of_arch
from tileseer.problems.operation import Operation
from tileseer.problems.problem import LEAST, Problem, problem_frame
from tileseer.serve import serving

TEMPLATES = Path("workflow/templates")
PROJECT = "shipped"
API = Path("config/ck_api.yaml")
SOURCE_FOLDER = "kernels"
NATIVE = ("launcher.hpp", "tileseer_conv.h", "gpu_api.hpp", "reference.hpp")
EMULATED_FILES = ("emulated_device.hpp", "hip_stand_in.cpp")
RUNTIMES = {"hipcc": ("hip", "hip/hip_runtime_api.h"), "nvcc": ("cuda", "cuda_runtime_api.h")}
CPP_TYPE_OF_DTYPE = {"fp16": "Fp16", "bf16": "Bf16", "fp32": "Fp32"}
_FILTER = "shape.filter[0] * shape.filter[1] * shape.filter[2]"
TEXT_OF_DIRECTION: dict[str, dict[str, Any]] = {
    "forward": {
        "meaning": "y = x convolved with w.",
        "tensors": "const void* x, const void* w, void* y",
        "read": ("x", "w"),
        "result": "y",
        "reference": "ForwardReference",
        "length": f"shape.C * {_FILTER}",
    },
    "bwd_data": {
        "meaning": "x = the gradient of the input, from w and the gradient y of the output.",
        "tensors": "void* x, const void* w, const void* y",
        "read": ("y", "w"),
        "result": "x",
        "reference": "BackwardDataReference",
        "length": f"shape.K * {_FILTER}",
    },
    "bwd_weight": {
        "meaning": "w = the gradient of the weight, from x and the gradient y of the output.",
        "tensors": "const void* x, void* w, const void* y",
        "read": ("x", "y"),
        "result": "w",
        "reference": "BackwardWeightReference",
        "length": "shape.N * shape.out[0] * shape.out[1] * shape.out[2]",
    },
}
"""C++ of a direction: its tensors, what it reads in the order of tileseer_conv.h, and its reference."""
_SQUARE = {"Hi": 6, "Wi": 6}
_FILTERED = {**_SQUARE, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}
LAYERS = (
    *({"C": n, "K": n, **_FILTERED} for n in (64, 16, 8)),
    *({"C": n, "K": n, **_SQUARE} for n in (64, 16, 8)),
    {"G": 4, "C": 64, "K": 64, **_FILTERED},
    {"G": 16, "C": 16, "K": 16, **_FILTERED},
)
"""Small layers, of which main.cpp runs the first that has a kernel."""
DEPTH_OF_EXAMPLE = {"Di": 3, "Z": 3, "pad_d": 1}


def emitter_of(arch: str, level: str) -> Emitter | None:
    """Return what writes the kernels of an arch for a level of the library's API (empty: the newest), or None."""
    library, own = library_of_arch(arch), places.workflow_folder()
    return None if library.emitter is None else library.emitter(own / TEMPLATES, own / API, level)


def write_selector(folder: Path, measurements: Dataset, model: Model) -> None:
    """Write into ``folder`` what picks among the kernels of a model."""
    template = places.workflow_folder() / TEMPLATES / "serving/selector.hpp.j2"
    text = serving.header_of(measurements, model, template)
    folder.mkdir(parents=True)
    write_text(folder / model_files.SELECTOR, text)


def write_project(
    folder: Path, arch: str, models: Mapping[str, tuple[Model, Mapping[str, int]]], emitter: Emitter
) -> None:
    """Write the project for the kernels in the pools of models, by operation.

    The dimensions beside a model are those of a problem that it has a kernel for, in case that ``LAYERS`` has none.
    """
    library = library_of_arch(arch)
    names = {operation: sorted(set(model.pool["kernel"])) for operation, (model, _) in models.items()}
    kernels = [library.kernel.parse(name) for name in sorted({name for own in names.values() for name in own})]
    vendor = compiler.VENDORS[library.toolchain]
    runtime, runtime_header = RUNTIMES[vendor.program]
    operations = [_operation(operation, *models[operation]) for operation in models]
    common = {"arch": target(arch), "dims": list(LEAST.items()), "runtime": runtime, "runtime_header": runtime_header}
    files = _kernel_files(kernels, emitter, target(arch))
    files |= {
        "include/tileseer/convolution.hpp": _cpp("convolution.hpp", **common, operations=operations),
        "main.cpp": _cpp("main.cpp", operations=operations),
        "CMakeLists.txt": fill_template(
            _template("CMakeLists.txt"),
            arch=target(arch),
            kernels=[kernel.name for kernel in kernels],
            library=library.title,
            compiler=vendor.program,
            suffix=emitter.source_suffix.removeprefix("."),
            level=emitter.level,
            levels=emitter.levels,
            flags=[*compiler.program_flags(vendor), *compiler.arch_options(vendor, target(arch))],
            operations=list(models),
        ),
    }
    for operation in operations:
        own = {"arch": arch, "dims": list(LEAST.items()), "operation": operation, "kernels": names[operation["name"]]}
        files[f"src/{operation['name']}.cpp"] = _cpp("operation.cpp", **own)
    files |= _copies(emitter.launcher, vendor)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_text(folder / path, text)


def _template(name: str) -> Path:
    return places.workflow_folder() / TEMPLATES / PROJECT / f"{name}.j2"


def _cpp(template: str, /, **values: object) -> str:
    return fill_cpp_template(_template(template), **values)


def _kernel_files(kernels: Sequence[Kernel], emitter: Emitter, arch: str) -> dict[str, str]:
    """Return the header and unit of each kernel."""
    files, library = {}, library_of_arch(arch)
    for kernel in kernels:
        header = emitter.header_file(kernel)
        files[f"{SOURCE_FOLDER}/{header}"] = emitter.kernel_files(kernel, arch)[header]
        files[f"{SOURCE_FOLDER}/{kernel.name}{emitter.source_suffix}"] = _cpp(
            "kernel.cpp", name=kernel.name, header=header, launcher=emitter.launcher, family=library.name,
            variant=kernel.variant.upper(), ndim=kernel.ndim, dtype=kernel.dtype.upper(),
        )  # fmt: skip
    return files


def _copies(launcher: str, vendor: compiler.Vendor) -> dict[str, str]:
    """Return the files that every project has as they are."""
    own, measuring = places.workflow_folder() / TEMPLATES / PROJECT, places.workflow_folder() / compiler.NATIVE_SOURCES
    sources = {f"src/{name}": own / name for name in ("kernel.hpp", "dispatcher.hpp", "dispatcher.cpp")}
    sources["src/tuned.hpp"] = own.with_name("serving") / "tuned.hpp"
    sources |= {f"src/{name}": measuring / name for name in (*NATIVE, launcher)}
    if vendor is compiler.HIPCC:
        sources |= {f"emulated/{name}": measuring / name for name in EMULATED_FILES}
        sources["emulated/emulated_program.cpp"] = own / "emulated_program.cpp"
    return {path: read_utf8(source) for path, source in sources.items()}


def _operation(name: str, model: Model, sure: Mapping[str, int]) -> dict[str, Any]:
    operation = Operation.parse(name)
    own = TEXT_OF_DIRECTION[operation.variant]
    return {
        **own,
        "name": name,
        "direction": operation.variant.upper(),
        "type": CPP_TYPE_OF_DTYPE[operation.dtype],
        "order": ", ".join((*own["read"], own["result"])),
        "layers": _layers(model, operation, sure),
    }


def _layers(model: Model, operation: Operation, sure: Mapping[str, int]) -> list[dict[str, int]]:
    """Return small layers that kernels of the model run, one a dimensionality; dimensions that 1x1 has not."""
    layers = []
    for depth in ({}, DEPTH_OF_EXAMPLE):
        shapes = [{**layer, **depth} for layer in LAYERS]
        problems = [Problem.from_dims(operation.variant, operation.dtype, N=1, **shape) for shape in shapes]
        runs = model.supported(problem_frame(problems)).any(axis=1)
        if runs.any():
            layers.append(shapes[int(runs.argmax())])
    return layers or [{name: value for name, value in sure.items() if value != LEAST[name]}]
