"""The rule sets ``profiler`` and ``tests``: kernels made of the instance files of a Composable Kernel checkout.

The files say block size, tile and repeats; waves follow with the arch's wave size. What the reference leaves out of
the result is left out here by a named rule, with a reason.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tileseer.core.errors import UserError
from tileseer.families.ck_tile import flags
from tileseer.families.ck_tile.depthwise import DepthwiseConfig
from tileseer.families.ck_tile.kernel import KernelConfig
from tileseer.families.enumeration import first_of
from tileseer.families.gemm_kernel import Kernel
from tileseer.gpu.arch import ArchSpecs
from tileseer.reference import reference_filter
from tileseer.reference.builder_lines import BuilderRules, Instance, Line, read_lines
from tileseer.reference.full_set import Cell
from tileseer.reference.named_tables import CLASS_OF

EPILOGUE = "cshuffle"


@dataclass(frozen=True)
class Skipped:
    """A line that makes no kernel on this arch, with the rule that says so."""

    where: str
    rule: str
    reason: str


@dataclass(frozen=True)
class Built:
    """A kernel of an instance file; ``lossy`` names the pipeline that the line asked for if it is another one."""

    kernel: KernelConfig
    lossy: str


def gemm_kernels(
    cell: Cell, rule_set: str, root: Path, rules: BuilderRules, specs: ArchSpecs
) -> tuple[list[Built], list[Skipped]]:
    """Kernels of a cell in file order, the first of equal ones; 1D has no files and no kernels."""
    layout = rules.files.layouts.get(cell.ndim)  # type: ignore[call-overload]
    kernels: dict[KernelConfig, Built] = {}
    skipped: list[Skipped] = []
    if layout is None:
        return [], []
    folder = root / rules.files.folder / rules.files.directions[cell.variant] / rule_set  # type: ignore[index]
    for name in rules.files.names[cell.variant]:  # type: ignore[index]
        path = folder / name.format(layout=layout, dtype=cell.dtype)
        for line in read_lines(path, rules):
            if line.kind.form == "depthwise" or line.kind.variant != cell.variant:
                raise UserError(f"{line.where}: an instance of {line.kind.variant} ({line.kind.form}) in this file")
            fault = _add(line, cell, layout, rules, specs, kernels)
            skipped += [Skipped(line.where, *fault)] if fault else []
    return list(kernels.values()), skipped


def depthwise_kernels(
    dtypes: Sequence[str], rule_set: str, root: Path, rules: BuilderRules
) -> Iterator[DepthwiseConfig]:
    """Yield the depthwise kernels, data types innermost."""
    file = rules.files.depthwise
    for line in read_lines(root / rules.files.folder / file.direction / rule_set / file.name, rules):
        if line.kind.form != "depthwise":
            raise UserError(f"{line.where}: an instance of {line.kind.variant} among the depthwise ones")
        tile_h, tile_w, size, stride_h, stride_w, pad_h, pad_w, batches, sub_h, sub_w, vec_in, vec_out = (
            line.depthwise()
        )
        for dtype in dtypes:
            kernel = DepthwiseConfig(
                dtype, tile_h, tile_w, size, stride_h, stride_w, sub_h, sub_w, batches, vec_in, vec_out
            )
            if (pad_h, pad_w) != (kernel.pad, kernel.pad):
                raise UserError(f"{line.where}: padding {pad_h}x{pad_w}; a filter of {size} has {kernel.pad}")
            yield kernel


def native_files(
    kernels: Iterable[Kernel], arch: str, rules: BuilderRules, specs: ArchSpecs
) -> tuple[dict[str, str], list[str]]:
    """Native instance files of kernels: path below the folder of a rule set to text; and the names without a line.

    A kernel has a line if reading the line gives exactly this kernel.
    """
    texts: dict[str, str] = {}
    without = []
    for kernel in sorted(kernels, key=lambda one: one.name):
        line = ""
        if isinstance(kernel, KernelConfig) and kernel.ndim in rules.files.layouts:
            line = _native_line(kernel, arch, rules, specs)
        if not line:
            without.append(kernel.name)
            continue
        name = rules.files.names[kernel.variant][0]  # type: ignore[index]
        path = f"{rules.files.directions[kernel.variant]}/{name}"  # type: ignore[index]
        path = path.format(layout=rules.files.layouts[kernel.ndim], dtype=kernel.dtype)  # type: ignore[index]
        texts[path] = f"{texts.get(path, '')}{line}\n"
    return texts, without


def _native_line(kernel: KernelConfig, arch: str, rules: BuilderRules, specs: ArchSpecs) -> str:
    """The line that is read as this kernel, or an empty string."""
    name, kind = next(
        (name, kind) for name, kind in rules.kinds.items() if kind.form == "native" and kind.variant == kernel.variant
    )
    deep = kernel.ndim == 3
    values = {
        place: text.format(ndim=kernel.ndim, dtype=kernel.dtype, d="D" * deep, z="Z" * deep)
        for place, text in rules.written.items()
    }
    words = {
        kind.specialization: _word_of(kernel.specialization, rules.specializations),
        kind.pipeline: _word_of(kernel.pipeline, {k: v for k, v in rules.pipelines.items() if k not in rules.lossy}),
        kind.scheduler: kernel.scheduler.capitalize(),
        kind.groups: kernel.num_groups_to_merge,
        kind.split_image: int(kernel.split_image),
        kind.explicit_gemm: int(kernel.explicit_gemm),
        kind.double_smem_buffer: int(kernel.double_smem_buffer),
        kind.wave_groups: kernel.num_wave_groups,
    }
    sizes = ((kind.tile, kernel.tile), (kind.waves, kernel.wave), (kind.warp_tile, kernel.warp_tile),
             (kind.vectors, kernel.vectors))  # fmt: skip
    words |= {place: size for places, own in sizes for place, size in zip(places or (), own, strict=True)}
    values |= {place: str(word) for place, word in words.items() if place is not None}
    if "" in values.values() or sorted(values) != list(range(kind.fields[0])):
        return ""
    text = f"{name}<{','.join(values[place] for place in sorted(values))}>"
    cell = Cell(arch, kernel.variant, kernel.ndim, kernel.dtype)
    read: dict[KernelConfig, Built] = {}
    _add(Line(text, kernel.name, rules), cell, rules.files.layouts[kernel.ndim], rules, specs, read)  # type: ignore[index]
    return text if kernel in read else ""


def _word_of(ours: str, table: Mapping[str, str]) -> str:
    """The first word of the table for ours, or an empty string."""
    return next((word for word, value in table.items() if value == ours), "")


def _add(
    line: Line, cell: Cell, layout: str, rules: BuilderRules, specs: ArchSpecs, kernels: dict[KernelConfig, Built]
) -> tuple[str, str] | None:
    """Add the kernel of a line; return the rule and reason if it makes none."""
    instance = line.instance()
    shape = _shape(instance, cell, rules, specs)
    if isinstance(shape, str):
        return "whole_waves", shape
    options = {"two_stage": _stores_odd(instance, cell), **instance.options}
    sizes: list[Any] = [*instance.tile, *shape, *instance.vectors]
    kernel = KernelConfig(
        cell.variant, cell.dtype, layout, cell.ndim, instance.pipeline, EPILOGUE, instance.scheduler, *sizes, **options
    )
    fault = first_of(SKIP_RULES, kernel, cell.arch, specs)
    if fault[0]:
        return fault
    kernels.setdefault(kernel, Built(kernel, instance.lossy))
    return None


def _shape(instance: Instance, cell: Cell, rules: BuilderRules, specs: ArchSpecs) -> tuple[int, ...] | str:
    """Waves and warp tile (m, n, k each), or why the block is no whole number of waves."""
    if instance.waves and instance.warp_tile:
        return (*instance.waves, *instance.warp_tile)
    waves_m, waves_n = (
        size // (matrix * repeat)
        for size, matrix, repeat in zip(instance.tile[:2], instance.matrix, instance.repeats, strict=True)
    )
    lanes = specs.arch(cell.arch).wave_size * waves_m * waves_n
    if lanes < 1 or instance.block < lanes:
        return (
            f"a block of {instance.block} threads has no {waves_m}x{waves_n} waves of {specs.arch(cell.arch).wave_size}"
        )
    by_matrix = rules.matrix_k[CLASS_OF[cell.dtype]]
    if instance.matrix[0] not in by_matrix:
        return f"there is no matrix instruction with m = {instance.matrix[0]}"
    warp_k = min(max(instance.ak1, by_matrix[instance.matrix[0]]), instance.tile[2])
    return waves_m, waves_n, instance.block // lanes, *instance.matrix, warp_k


def _stores_odd(instance: Instance, cell: Cell) -> bool:
    """Whether a second stage is needed: 16-bit results cannot be added up one by one."""
    options, stores = instance.options, instance.vectors[2]
    if CLASS_OF[cell.dtype] != "half" or cell.variant != "bwd_weight" or "streamk" in options:
        return False
    return stores == 1 if instance.waves else options["explicit_gemm"] and stores % 2 == 1


def backward_vectors(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """Backward kernels have vectors of 1 or even width."""
    return "" if kernel.variant == "forward" else reference_filter.vectors_one_or_even(kernel, arch, specs)


def one_wave_covers(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """One wave reads a whole row of A and of B: m (bwd_data: k) and n of the tile fit its lanes times the vector."""
    if kernel.variant == "forward":
        return ""
    lanes = specs.arch(arch).wave_size
    rows_a = kernel.tile_m if kernel.variant == "bwd_weight" else kernel.tile_k
    for side, rows, width in (("A", rows_a, kernel.vec_a), ("B", kernel.tile_n, kernel.vec_b)):
        if rows > lanes * width:
            return f"{rows} elements of {side} are more than {lanes} lanes x {width}"
    return ""


def share_holds_vector(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """bwd_data: a vector of A or B is no wider than a thread's share of the tile."""
    if kernel.variant != "bwd_data":
        return ""
    threads = specs.arch(arch).wave_size * kernel.wave_m * kernel.wave_n * kernel.wave_k
    for side, rows, width in (("A", kernel.tile_m, kernel.vec_a), ("B", kernel.tile_n, kernel.vec_b)):
        share = rows * kernel.tile_k // threads
        if width > share:
            return f"a vector of {width} is wider than the {share} elements of {side} a thread"
    return ""


SKIP_RULES = {
    "wave32_instruction": reference_filter.wave32_instruction,
    "backward_vectors": backward_vectors,
    "one_wave_covers": one_wave_covers,
    "share_holds_vector": share_holds_vector,
    "streamk_async_is_half": flags.DEFECTS["streamk_async_fp32"].check,
}
"""Of kernels that the reference leaves out, by name."""
