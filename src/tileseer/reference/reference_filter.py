"""What the reference generator refuses, quirks included. What *we* hold legal: ``tileseer.families.ck_tile.validity``.

Two stages. ``CONFIG_RULES`` apply while a rule set is enumerated. ``ARCH_RULES`` are the architecture filter, which
the reference may leave out: a kernel that fails them still belongs to the rule set. A rule returns an empty string when
the kernel passes, else why the reference refuses it.
"""

from tileseer.families.ck_tile import validity
from tileseer.families.ck_tile.kernel import KernelConfig
from tileseer.families.enumeration import Rules, first_of, named
from tileseer.gpu.arch import ArchSpecs

OPERATORS = {"forward": "conv_fwd", "bwd_data": "conv_bwd_data", "bwd_weight": "conv_bwd_weight"}
"""The limits of the 2D operators are used for every dimensionality."""
BACKWARD_PIPELINES = ("compv3", "mem")
UNKNOWN_TO_ARCH_FILTER = ("basic_async_v1",)
"""Pipelines without interwave in our arch table that the filter's own copy of the table leaves out."""
WAVE32_MIN_WARP_K = 32


def config_fault(kernel: KernelConfig, arch: str, specs: ArchSpecs, tagged: bool) -> tuple[str, str]:
    """The first enumeration rule that refuses the kernel and why, or two empty strings.

    ``tagged`` tells whether the rule set chose the kernel for its data type; ``default`` does not.
    """
    rules = CONFIG_RULES if tagged else CONFIG_RULES | {"wave32_instruction": _untagged_wave32_instruction}
    return first_of(rules, kernel, arch, specs)


def arch_fault(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> tuple[str, str]:
    """The first rule of the architecture filter that refuses the kernel and why, or two empty strings."""
    return first_of(ARCH_RULES, kernel, arch, specs)


def streamk_is_bwd_weight(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """Stream-K exists for bwd_weight."""
    wrong = kernel.streamk != "none" and kernel.variant != "bwd_weight"
    return f"stream-K exists for bwd_weight only, not for {kernel.variant}" if wrong else ""


def vectors_one_or_even(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """Vector widths are 1 or even: 6 or 10 pass here, though no such load exists."""
    odd = [width for width in kernel.vectors if width != 1 and width % 2]
    return f"vector widths {odd} are neither 1 nor even" if odd else ""


def waves_listed(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """The arch lists the wave layout, its k included."""
    return "" if kernel.wave in specs.arch(arch).waves else f"waves {kernel.wave} are not among those of {arch}"


def wave32_instruction(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """On waves of 32 the warp tile is deep and narrow, and there is no stream-K.

    The depth is only asked of kernels with a data-type tag: the reference means to exempt fp32, but compares the tag
    with a word that no tag ever is. The table of gfx11 and gfx12 then refuses every kernel that this rule lets pass.
    """
    if specs.arch(arch).wave_size == 32 and kernel.warp_tile_k < WAVE32_MIN_WARP_K:
        return f"warp tile k = {kernel.warp_tile_k}; waves of 32 need at least {WAVE32_MIN_WARP_K}"
    return _untagged_wave32_instruction(kernel, arch, specs)


def _untagged_wave32_instruction(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    if specs.arch(arch).wave_size != 32:
        return ""
    if kernel.wave_k * kernel.warp_tile_k > kernel.tile_k:
        return f"{kernel.wave_k} waves x warp tile k {kernel.warp_tile_k} exceed tile_k = {kernel.tile_k}"
    if kernel.warp_tile_m == 32:
        return "waves of 32 have no warp tile with m = 32"
    return "waves of 32 have no stream-K" if kernel.streamk != "none" else ""


def tile_limits(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """The tile respects the operator's smallest size and alignment."""
    limits = specs.operator_limits(OPERATORS[kernel.variant])
    for axis, size, least, step in zip("mnk", kernel.tile, limits.min_tile, limits.alignment, strict=True):
        if size < least or size % step:
            return f"tile_{axis} = {size}; {OPERATORS[kernel.variant]} needs a multiple of {step}, at least {least}"
    return ""


def tile_covers_waves(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """Waves x warp tile fit into the tile; one wave along k is assumed whatever the kernel has."""
    for axis, tile, used in zip("mnk", kernel.tile, _coverage(kernel), strict=True):
        if used > tile:
            return f"waves x warp tile is {used}, larger than tile_{axis} = {tile}"
    return ""


def flat_waves_listed(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """The arch lists the wave layout, taken with one wave along k."""
    flat = (kernel.wave_m, kernel.wave_n, 1)
    return "" if flat in specs.arch(arch).waves else f"waves {flat} are not among those of {arch}"


def warp_tile_listed(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """The arch lists the warp tile; an arch without any for the data type is not checked (fp32 on RDNA)."""
    allowed = specs.warp_tiles(arch, kernel.dtype)
    if not allowed or kernel.warp_tile in allowed:
        return ""
    return f"warp tile {kernel.warp_tile} is no {kernel.dtype} matrix instruction of {arch}"


def backward_pipeline(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """Backward kernels are compv3 or mem: this refuses many that build and run."""
    if kernel.variant == "forward" or kernel.pipeline in BACKWARD_PIPELINES:
        return ""
    return f"{kernel.pipeline} is not among the backward pipelines {', '.join(BACKWARD_PIPELINES)}"


def listed_trait_allowed(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """Pipeline, epilogue and scheduler must fit; this copy of the table lacks basic_async_v1."""
    return "" if kernel.pipeline in UNKNOWN_TO_ARCH_FILTER else validity.trait_allowed(kernel, arch, specs)


def lds_limit(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """One buffer of A and B fits the pipeline's limit; neither a second buffer nor the arch's LDS is looked at."""
    used = int((kernel.tile_m + kernel.tile_n) * kernel.tile_k * specs.element_size(kernel.dtype))
    limit = specs.lds_limit(kernel.pipeline)
    return f"A and B take {used} bytes of LDS; {kernel.pipeline} may use {limit}" if used > limit else ""


def tile_divides(kernel: KernelConfig, arch: str, specs: ArchSpecs) -> str:
    """The tile is a whole multiple of waves x warp tile; one wave along k is assumed."""
    for axis, tile, used in zip("mnk", kernel.tile, _coverage(kernel), strict=True):
        if tile % used:
            return f"tile_{axis} = {tile} is no multiple of waves x warp tile = {used}"
    return ""


def _coverage(kernel: KernelConfig) -> tuple[int, int, int]:
    return kernel.wave_m * kernel.warp_tile_m, kernel.wave_n * kernel.warp_tile_n, kernel.warp_tile_k


CONFIG_RULES: Rules = {
    "trait_allowed": validity.trait_allowed,
    "streamk_is_bwd_weight": streamk_is_bwd_weight,
    "compv5_is_forward": validity.pipeline_fits_variant,
    "vectors_one_or_even": vectors_one_or_even,
    "waves_listed": waves_listed,
    "wave32_instruction": wave32_instruction,
    "compv6_has_loads": validity.full_load_per_thread,
}
ARCH_RULES: Rules = named(
    tile_limits, tile_covers_waves, flat_waves_listed, warp_tile_listed, backward_pipeline, listed_trait_allowed,
    lds_limit, tile_divides,
)  # fmt: skip
