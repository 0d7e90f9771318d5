"""Is this kernel legal on this arch? One small predicate a rule; each says why it refuses.

A predicate returns an empty string when the kernel passes. Rules look at the kernel alone; what a *problem*
demands is in ``tileseer.families.ck_tile.support``.
"""

from tileseer.conv.implicit_gemm import channel_runs
from tileseer.families.ck_tile.kernel import KernelConfig
from tileseer.families.enumeration import named, threads_fit, tile_divides
from tileseer.gpu.arch import ArchSpecs

VECTOR_WIDTHS = (1, 2, 4, 8, 16)


def waves_on_arch(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """The wave layout must be one that the arch supports."""
    allowed = [tuple(wave) for wave in specs.arch(arch).waves]
    return "" if kernel.wave in allowed else f"waves {kernel.wave} are not among those of {arch}: {allowed}"


def warp_tile_on_arch(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """The warp tile must be a matrix instruction of the arch for the data type."""
    allowed = [tuple(tile) for tile in specs.warp_tiles(arch, kernel.dtype)]
    if kernel.warp_tile in allowed:
        return ""
    return f"warp tile {kernel.warp_tile} is no {kernel.dtype} matrix instruction of {arch}: {allowed}"


def trait_allowed(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """Some pipelines have no interwave scheduler."""
    if specs.is_trait_excluded(kernel.pipeline, kernel.epilogue, kernel.scheduler):
        return f"{kernel.pipeline} with the {kernel.epilogue} epilogue has no {kernel.scheduler} scheduler"
    return ""


def pipeline_fits_variant(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """compv5 exists for the forward direction only."""
    if kernel.pipeline == "compv5" and kernel.variant != "forward":
        return f"compv5 exists for forward only, not for {kernel.variant}"
    return ""


def options_fit_variant(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """Two-stage and stream-K reduce into dW: backward weight only."""
    if kernel.variant != "bwd_weight":
        if kernel.two_stage:
            return f"two_stage exists for bwd_weight only, not for {kernel.variant}"
        if kernel.streamk != "none":
            return f"stream-K exists for bwd_weight only, not for {kernel.variant}"
    return ""


def buffering_fits_pipeline(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """compv4 and comp_async ping-pong between two LDS buffers."""
    if kernel.pipeline in ("compv4", "comp_async") and not kernel.double_smem_buffer:
        return f"{kernel.pipeline} needs double_smem_buffer"
    return ""


def vector_widths(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """Vector loads and stores exist for 1, 2, 4, 8 and 16 elements."""
    for axis, width in zip("abc", kernel.vectors, strict=True):
        if width not in VECTOR_WIDTHS:
            return f"vec_{axis} = {width} is none of {VECTOR_WIDTHS}"
    return ""


def one_channel(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """A filter3x3 kernel takes one channel a group only: no load or store along C is wider than one element."""
    if kernel.specialization != "filter3x3":
        return ""
    for axis, width, run in zip("abc", kernel.vectors, channel_runs(kernel.variant, "C", "K"), strict=True):
        if run == "C" and width > 1:
            return f"filter3x3 takes one channel a group, and vec_{axis} = {width} needs {width}: no problem can run"
    return ""


def lds_fits(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """The A and B tiles must fit into the pipeline's share of the LDS; double buffering leaves half of it."""
    need = int((kernel.tile_m + kernel.tile_n) * kernel.tile_k * specs.element_size(kernel.dtype))
    budget = specs.lds_budget(kernel.pipeline, arch)
    if kernel.double_smem_buffer:
        budget = min(budget, specs.arch(arch).lds_bytes // 2)
    return "" if need <= budget else f"a tile of {need} bytes is over the {budget} bytes of LDS that {arch} leaves"


def full_load_per_thread(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """compv6 needs at least one full vector load of A and of B for each thread."""
    if kernel.pipeline != "compv6":
        return ""
    threads = specs.arch(arch).wave_size * kernel.wave_m * kernel.wave_n * kernel.wave_k
    for axis, tile, vector in (("A", kernel.tile_m, kernel.vec_a), ("B", kernel.tile_n, kernel.vec_b)):
        if tile * kernel.tile_k // (threads * vector) < 1:
            return f"compv6: {threads} threads x {vector} elements are more than the whole {axis} tile"
    return ""


RULES = named(
    waves_on_arch, warp_tile_on_arch, tile_divides, threads_fit, trait_allowed, pipeline_fits_variant,
    options_fit_variant, buffering_fits_pipeline, vector_widths, one_channel, lds_fits, full_load_per_thread,
)  # fmt: skip
