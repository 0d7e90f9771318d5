"""The compile stage: build tables of a chunk's kernels, and the libraries that a real GPU is measured with."""

from collections import Counter
from pathlib import Path

import pyarrow as pa

from tileseer.build import build, registration
from tileseer.build.base import NoToolchain, Toolchain
from tileseer.build.hipcc import HipccToolchain
from tileseer.build.modules import Libraries
from tileseer.build.nvcc import NvccToolchain
from tileseer.core import bundle, parquet
from tileseer.core.errors import UserError
from tileseer.core.script import Settings
from tileseer.facts.compile import CompileSettings
from tileseer.facts.hardware import read_hardware
from tileseer.libraries import kernel_table
from tileseer.libraries.costs.coefficients import load_coefficients
from tileseer.libraries.registry import parse_kernels

TOOLCHAINS = {"hipcc": HipccToolchain, "nvcc": NvccToolchain}


def toolchain(
    settings: Settings, arch: str, hardware: Path, product: str, coefficients: Path, native: Path
) -> Toolchain:
    """Return the toolchain that builds kernels for an arch, or estimates their cost."""
    gpu, name = read_hardware(hardware, product), CompileSettings.of(settings, "compile").toolchain
    if name == "none":
        return NoToolchain(gpu, load_coefficients(coefficients))
    return TOOLCHAINS[name](*registration.builder_parts(settings, arch, native), gpu)


def build_chunk(configs: Path, chunk: int, headers: Path, arch: str, toolchain: Toolchain) -> pa.Table:
    """Build table of the kernels of one chunk."""
    rows = kernel_table.read_kernel_table(configs, chunk)
    units = build.compile_units(kernel_table.kernels_of_rows(rows), bundle.read_bundle(headers), arch, str(headers))
    return build.build_kernels(units, rows["split_k"].to_pylist(), toolchain)


def describe_build(table: pa.Table) -> str:
    """Say how many kernels of a table have each status."""
    counts = Counter(table["build_status"].to_pylist())
    failed = ", ".join(f"{name.replace('_', ' ')} {counts[name]:,}" for name in sorted(counts) if name != "ok")
    return f"{counts['ok']:,} of {table.num_rows:,} kernels can be used" + (f"; failed: {failed}" if failed else "")


def library(
    arch: str, native: Path, headers: Path | None, build_table: Path | None, settings: Settings, device: str = ""
) -> tuple[bytes, str]:
    """Build a module of a chunk's kernels, or without a chunk the driver; return its content and what it is."""
    libraries = Libraries(*registration.builder_parts(settings, arch, native))
    if headers is None and build_table is None:
        if device == "emulated":
            return libraries.emulated_driver(), "driver of the emulated GPU"
        return libraries.driver(arch), "measuring driver"
    if headers is None or build_table is None:
        raise UserError("--headers and --build belong together: give both for a module, none for the driver")
    rows = parquet.read_table(build_table, build.SCHEMA)
    statuses = zip(rows["kernel"].to_pylist(), rows["build_status"].to_pylist(), strict=True)
    built = parse_kernels([name for name, status in statuses if status == "ok"])
    units = build.compile_units(built, bundle.read_bundle(headers), arch, str(headers))
    return libraries.module(units), f"module of {len(units)} kernels"
