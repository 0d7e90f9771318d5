"""The key under which the dispatcher's registry knows a kernel: one field of C++ after the other.

It is made of the kernel, never of its name, and no two kernels share one.
"""

from tileseer.kernels.ck_tile.api import CkApi
from tileseer.kernels.ck_tile.depthwise import LAYOUT, DepthwiseConfig
from tileseer.kernels.ck_tile.kernel import KernelConfig

ARCH_ARGUMENT = "gfx_arch"
"""What the factory of a kernel calls its argument."""
DEPTHWISE_BLOCKS_PER_CU = 2

Key = dict[str, str]


def of_gemm(k: KernelConfig, api: CkApi) -> Key:
    """Field to C++ expression for an implicit-GEMM kernel."""
    return {
        **_common(k.dtype, api.layouts[k.ndim].label, k.ndim, api.variants[k.variant].operation),
        "tile_m": f"{k.tile_m}", "tile_n": f"{k.tile_n}", "tile_k": f"{k.tile_k}",
        "wave_m": f"{k.wave_m}", "wave_n": f"{k.wave_n}", "wave_k": f"{k.wave_k}",
        "warp_m": f"{k.warp_tile_m}", "warp_n": f"{k.warp_tile_n}", "warp_k": f"{k.warp_tile_k}",
        "pipeline": _text(k.pipeline), "scheduler": _text(k.scheduler), "epilogue": _text(k.epilogue),
        "vector_size_a": f"{k.vec_a}", "vector_size_b": f"{k.vec_b}", "vector_size_c": f"{k.vec_c}",
        "block_per_cu": f"{k.blocks_per_cu}", "num_wave_groups": f"{k.num_wave_groups}",
        "num_groups_to_merge": f"{k.num_groups_to_merge}", "specialization": _text(_specialization(k)),
        "large_tensor": _flag(k.split_image), "streamk_enabled": _flag(k.streamk != "none"),
        "streamk_reduction": _text(k.streamk), "streamk_persistent": _flag(k.streamk_persistent),
        "arch": ARCH_ARGUMENT,
    }  # fmt: skip


def of_depthwise(k: DepthwiseConfig, api: CkApi) -> Key:
    """The same for a depthwise kernel; its sizes take the GEMM's places (docs/kernels.md)."""
    return {
        **_common(k.dtype, LAYOUT, k.ndim, api.variants[k.variant].operation),
        "tile_m": f"{k.tile_h}", "tile_n": f"{k.tile_w}", "tile_k": f"{k.filter_size}",
        "wave_m": f"{k.stride_h}", "wave_n": f"{k.stride_w}", "wave_k": "0",
        "warp_m": f"{k.pad}", "warp_n": f"{k.pad}", "warp_k": f"{k.batches}",
        "pipeline": _text("depthwise"), "scheduler": _text("none"), "epilogue": _text("none"),
        "vector_size_a": f"{k.vec_in}", "vector_size_b": f"{k.vec_in}", "vector_size_c": f"{k.vec_out}",
        "block_per_cu": f"{DEPTHWISE_BLOCKS_PER_CU}", "num_wave_groups": "1", "num_groups_to_merge": "1",
        "specialization": _text(f"sub{k.sub_h}x{k.sub_w}"), "large_tensor": _flag(False),
        "streamk_enabled": _flag(False), "streamk_reduction": _text("none"), "streamk_persistent": _flag(False),
        "arch": ARCH_ARGUMENT,
    }  # fmt: skip


def values(key: Key, arch: str) -> dict[str, str | int | bool]:
    """What the C++ literals of a key say: numbers, flags, texts, names of enumerators, and the arch."""
    return {field: arch if text == ARCH_ARGUMENT else _value(text) for field, text in key.items()}


def _value(text: str) -> str | int | bool:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdigit() else text.strip('"')


def _common(dtype: str, layout: str, ndim: int, operation: str) -> Key:
    return {
        "dtype_in": _text(dtype), "dtype_wei": _text(dtype), "dtype_out": _text(dtype), "layout": _text(layout),
        "ndim_spatial": f"{ndim}", "op": f"GroupedConvOp::{operation}",
    }  # fmt: skip


def _specialization(k: KernelConfig) -> str:
    """The specialization with, behind a plus sign each, the options that the key has no field for."""
    extras = (
        ("+2stage", k.two_stage),
        ("+explicit_gemm", k.explicit_gemm),
        ("+dsb", k.double_smem_buffer),
        ("+pad" + "".join(str(int(pad)) for pad in (k.pad_m, k.pad_n, k.pad_k)), not (k.pad_m and k.pad_n and k.pad_k)),
    )
    return k.specialization + "".join(text for text, present in extras if present)


def _text(value: str) -> str:
    return f'"{value}"'


def _flag(value: bool) -> str:
    return "true" if value else "false"
