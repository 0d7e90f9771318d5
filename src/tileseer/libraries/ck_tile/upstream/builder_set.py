"""The rule sets ``profiler`` and ``tests``: kernels made of the instance files of a Composable Kernel checkout.

The files say block size, tile and repeats; waves follow with the arch's wave size. What the reference leaves out of
the result is left out here by ``SKIP_RULES``.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tileseer.core.errors import UserError
from tileseer.facts.arch import ArchSpecs
from tileseer.libraries.ck_tile import flags
from tileseer.libraries.ck_tile.depthwise import DepthwiseConfig
from tileseer.libraries.ck_tile.kernel import KernelConfig
from tileseer.libraries.ck_tile.upstream import reference_filter
from tileseer.libraries.ck_tile.upstream.builder_lines import BuilderRules, Line, read_lines
from tileseer.libraries.ck_tile.upstream.full_set import Cell
from tileseer.libraries.ck_tile.upstream.named_tables import CLASS_OF
from tileseer.libraries.ck_tile.upstream.reference_filter import without_broken
from tileseer.libraries.rules import Columns, Rule

EPILOGUE = "cshuffle"


def gemm_kernels(
    cell: Cell, rule_set: str, root: Path, rules: BuilderRules, specs: ArchSpecs
) -> dict[KernelConfig, str]:
    """Return the kernels of a cell in file order, with the pipeline that the first line of each asked for if another.

    1D has no files and no kernels.
    """
    layout = rules.files.layouts.get(cell.ndim)
    if layout is None:
        return {}
    lines = []
    for form in rules.files.paths[cell.variant]:
        path = form.format(set=rule_set, layout=layout, dtype=cell.dtype)
        for line in read_lines(root / rules.files.folder / path, rules):
            if line.kind.form == "depthwise" or line.kind.variant != cell.variant:
                raise UserError(f"{line.where}: an instance of {line.kind.variant} ({line.kind.form}) in this file")
            lines.append(line)
    return _kernels_of(lines, cell, rules, specs)


def depthwise_kernels(
    dtypes: Sequence[str], rule_set: str, root: Path, rules: BuilderRules
) -> Iterator[DepthwiseConfig]:
    """Yield the depthwise kernels, data types innermost."""
    path = rules.files.depthwise.format(set=rule_set)
    for line in read_lines(root / rules.files.folder / path, rules):
        if line.kind.form != "depthwise":
            raise UserError(f"{line.where}: an instance of {line.kind.variant} among the depthwise ones")
        for dtype in dtypes:
            kernel = DepthwiseConfig(dtype, *line.sizes("depthwise"))
            if line.sizes("padding", least=0) != (kernel.pad, kernel.pad):
                raise line.error(f"a filter of {kernel.filter_size} has the padding {kernel.pad}x{kernel.pad}")
            yield kernel


def _kernels_of(lines: Iterable[Line], cell: Cell, rules: BuilderRules, specs: ArchSpecs) -> dict[KernelConfig, str]:
    """Return the kernel of each line that makes one that the reference keeps, the first of equal ones."""
    kernels: dict[KernelConfig, str] = {}
    for line in lines:
        word = line.text("pipeline") or "direct " * line.flag("direct") + line.text("version", "v1")
        if word not in rules.pipelines:
            raise line.error(f"pipeline {word!r} is unknown; known: {', '.join(rules.pipelines)}")
        kernel = _kernel_of(line, rules.pipelines[word], cell, rules, specs)
        if kernel:
            kernels.setdefault(kernel, rules.lossy.get(word, ""))
    return {kernel: kernels[kernel] for kernel in without_broken(SKIP_RULES, list(kernels), cell.arch, specs)}


def _kernel_of(line: Line, pipeline: str, cell: Cell, rules: BuilderRules, specs: ArchSpecs) -> KernelConfig | None:
    """Return the kernel of a line; none if its block is no whole number of waves on the arch."""
    if "bk1" in line and line.sizes("ak1") != line.sizes("bk1"):
        raise line.error(f"AK1 is {line.text('ak1')} and BK1 {line.text('bk1')}; they have to be equal")
    m, n, *depth = line.sizes("tile")
    tile = (m, n, math.prod(depth))
    options: dict[str, Any] = {
        "specialization": line.word("specialization", rules.specializations, "Default"),
        "num_groups_to_merge": line.size("groups", 1),
        "num_wave_groups": line.size("wave_groups", 1),
        "double_smem_buffer": line.flag("double_smem_buffer") if line.kind.form == "native" else pipeline == "compv4",
        "explicit_gemm": line.flag("explicit_gemm"),
        "split_image": line.flag("split_image"),
        **line.kind.options,
    }
    if line.flag("streamk"):
        options["streamk"] = line.word("reduction", rules.reductions)
        options["streamk_persistent"] = line.flag("persistent")
    options = {"two_stage": _stores_odd(line, options, cell), **options}
    scheduler = line.word("scheduler", rules.schedulers, "Intrawave")
    shape = (*line.sizes("waves"), *line.sizes("warp_tile")) or _shape(line, tile, cell, rules, specs)
    if not shape:
        return None
    words = cell.variant, cell.dtype, rules.files.layouts[cell.ndim], cell.ndim, pipeline, EPILOGUE, scheduler
    sizes: list[Any] = [*tile, *shape, *line.sizes("vectors")]
    return KernelConfig(*words, *sizes, **options)


def _shape(line: Line, tile: Sequence[int], cell: Cell, rules: BuilderRules, specs: ArchSpecs) -> tuple[int, ...]:
    """Return waves and warp tile (m, n, k each) of a block size; nothing if it is no whole number of waves."""
    block, matrix = line.size("block"), line.sizes("matrix")
    waves_m, waves_n = (
        size // (side * repeat) for size, side, repeat in zip(tile[:2], matrix, line.sizes("repeats"), strict=True)
    )
    lanes = specs.arch(cell.arch).wave_size * waves_m * waves_n
    by_matrix = rules.matrix_k[CLASS_OF[cell.dtype]]
    if lanes < 1 or block < lanes or matrix[0] not in by_matrix:
        return ()
    return waves_m, waves_n, block // lanes, *matrix, min(max(line.size("ak1"), by_matrix[matrix[0]]), tile[2])


def _stores_odd(line: Line, options: Mapping[str, Any], cell: Cell) -> bool:
    """Tell whether a second stage is needed: 16-bit results cannot be added up one by one."""
    stores = line.sizes("vectors")[2]
    if CLASS_OF[cell.dtype] != "half" or cell.variant != "bwd_weight" or "streamk" in options:
        return False
    return stores == 1 if line.kind.form == "native" else options["explicit_gemm"] and stores % 2 == 1


def _one_wave_covers(k: Columns) -> np.ndarray:
    """Tell whether one wave reads a whole row of A and of B."""
    rows_a = np.where(k["variant"] == "bwd_weight", k["tile_m"], k["tile_k"])
    a, b = rows_a <= k["wave_size"] * k["vec_a"], k["tile_n"] <= k["wave_size"] * k["vec_b"]
    return (k["variant"] == "forward") | (a & b)


def _share_holds_vector(k: Columns) -> np.ndarray:
    """Tell whether a vector of A or B is no wider than a thread's share of the tile, for bwd_data."""
    a = k["vec_a"] <= k["tile_m"] * k["tile_k"] // k["threads"]
    b = k["vec_b"] <= k["tile_n"] * k["tile_k"] // k["threads"]
    return (k["variant"] != "bwd_data") | (a & b)


SKIP_RULES = (
    reference_filter.WAVE32_INSTRUCTION,
    Rule(
        "backward_vectors",
        reference_filter.VECTORS_ONE_OR_EVEN.reason,
        ("kernel",),
        lambda k: (k["variant"] == "forward") | reference_filter.VECTORS_ONE_OR_EVEN.holds(k),
    ),
    Rule(
        "one_wave_covers",
        "a row of A or B is longer than {wave_size} lanes x its vector",
        ("kernel",),
        _one_wave_covers,
    ),
    Rule("share_holds_vector", "a vector is wider than a thread's share of A or B", ("kernel",), _share_holds_vector),
    flags.STREAMK_ASYNC_FP32,
)
"""Of kernels that the reference leaves out."""
