"""The key under which the dispatcher's registry knows a kernel: one field of C++ after the other.

It is made of the kernel, never of its name, and no two kernels share one.
"""

from typing import Any

from tileseer.core.templates import quoted
from tileseer.libraries.ck_tile.api import CkApi
from tileseer.libraries.ck_tile.depthwise import DEPTHWISE_LAYOUT, DepthwiseConfig
from tileseer.libraries.ck_tile.kernel import KernelConfig
from tileseer.libraries.gemm_kernel import SIZES

DEPTHWISE_BLOCKS_PER_CU = 2
_KEY_SIZES = tuple(size.replace("warp_tile", "warp") for size in SIZES)
_VECTORS = ("vector_size_a", "vector_size_b", "vector_size_c")

Key = dict[str, Any]


class Expression(str):
    """C++ that stands in a key as it is; any other text is a literal."""

    __slots__ = ()


ARCH_ARGUMENT = Expression("gfx_arch")
"""What the factory of a kernel calls its argument."""


def gemm_key(k: KernelConfig, api: CkApi) -> Key:
    """Return field to value for an implicit-GEMM kernel."""
    return {
        **_operation(k, api.layouts[k.ndim].label, api),
        **dict(zip(_KEY_SIZES, (getattr(k, size) for size in SIZES), strict=True)),
        "pipeline": k.pipeline,
        "scheduler": k.scheduler,
        "epilogue": k.epilogue,
        **dict(zip(_VECTORS, (k.vec_a, k.vec_b, k.vec_c), strict=True)),
        "block_per_cu": k.blocks_per_cu,
        "num_wave_groups": k.num_wave_groups,
        "num_groups_to_merge": k.num_groups_to_merge,
        "specialization": _specialization(k),
        "large_tensor": k.split_image,
        "streamk_enabled": k.streamk != "none",
        "streamk_reduction": k.streamk,
        "streamk_persistent": k.streamk_persistent,
        "arch": ARCH_ARGUMENT,
    }


def depthwise_key(k: DepthwiseConfig, api: CkApi) -> Key:
    """Return field to value for a depthwise kernel, whose sizes take the GEMM's places (docs/internals/kernels.md)."""
    sizes = (k.tile_h, k.tile_w, k.filter_size, k.stride_h, k.stride_w, 0, k.pad, k.pad, k.batches)
    return {
        **_operation(k, DEPTHWISE_LAYOUT, api),
        **dict(zip(_KEY_SIZES, sizes, strict=True)),
        "pipeline": "depthwise",
        "scheduler": "none",
        "epilogue": "none",
        **dict(zip(_VECTORS, (k.vec_in, k.vec_in, k.vec_out), strict=True)),
        "block_per_cu": DEPTHWISE_BLOCKS_PER_CU,
        "num_wave_groups": 1,
        "num_groups_to_merge": 1,
        "specialization": f"sub{k.sub_h}x{k.sub_w}",
        "large_tensor": False,
        "streamk_enabled": False,
        "streamk_reduction": "none",
        "streamk_persistent": False,
        "arch": ARCH_ARGUMENT,
    }


def key_text(key: Key) -> dict[str, str]:
    """Return field to C++ expression."""
    plain = {field: str(value).lower() if isinstance(value, bool) else str(value) for field, value in key.items()}
    return {field: quoted(text) if type(key[field]) is str else text for field, text in plain.items()}


def _operation(k: KernelConfig | DepthwiseConfig, layout: str, api: CkApi) -> Key:
    operation = Expression(f"GroupedConvOp::{api.variants[k.variant].operation}")
    tensors = dict.fromkeys(("dtype_in", "dtype_wei", "dtype_out"), k.dtype)
    return tensors | {"layout": layout, "ndim_spatial": k.ndim, "op": operation}


def _specialization(k: KernelConfig) -> str:
    """Return the specialization with, behind a plus sign each, the options that the key has no field for."""
    pads = "".join(str(int(pad)) for pad in (k.pad_m, k.pad_n, k.pad_k))
    extras = {
        "+2stage": k.two_stage,
        "+explicit_gemm": k.explicit_gemm,
        "+dsb": k.double_smem_buffer,
        f"+pad{pads}": pads != "111",
    }
    return k.specialization + "".join(text for text, present in extras.items() if present)
