"""A kernel to vary in tests: legal on every CDNA target."""

from tileseer.libraries.ck_tile.kernel import KernelConfig


def a_kernel(**changes):
    fields = {
        "variant": "forward", "dtype": "bf16", "layout": "nhwgc", "ndim": 2, "pipeline": "compv3",
        "epilogue": "cshuffle", "scheduler": "intrawave", "tile_m": 64, "tile_n": 64, "tile_k": 64,
        "wave_m": 4, "wave_n": 1, "wave_k": 1, "warp_tile_m": 16, "warp_tile_n": 16, "warp_tile_k": 16,
    }  # fmt: skip
    return KernelConfig(**(fields | changes))
