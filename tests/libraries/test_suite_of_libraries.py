"""Our libraries keep what ``tileseer.testing`` asks of every one."""

from pathlib import Path

import pyarrow.parquet as pq

from tileseer.facts.hardware import read_hardware
from tileseer.testing.library import LibrarySuite

CONFIG = Path(__file__).parents[2] / "config"


def recorded(arch, operation):
    """Twelve kernels of a recording."""
    names = pq.read_table(CONFIG / f"recorded/{arch}/{operation}/kernels.parquet")["kernel"].to_pylist()
    two_dimensional = sorted(name for name in names if "3d" not in name)
    return tuple(two_dimensional[:: max(1, len(two_dimensional) // 12)])


def gpu(product):
    return read_hardware(CONFIG / "hardware.yaml", product)


class TestCkTile(LibrarySuite):
    arch, gpu = "gfx950", gpu("gfx950_mi355x")
    kernels = recorded("gfx950_mi355x", "forward_bf16")


class TestCutlass(LibrarySuite):
    arch, gpu = "sm_90", gpu("sm_90_h200")
    kernels = recorded("sm_90", "forward_bf16")


class TestMiopen(LibrarySuite):
    arch, gpu = "gfx942_miopen", gpu("gfx942_mi300x")
    kernels = recorded("gfx942_miopen", "forward_fp16")


class TestCudnn(LibrarySuite):
    arch, gpu = "sm_90_cudnn", gpu("sm_90_h200")
    kernels = recorded("sm_90_cudnn", "bwd_weight_fp16")
