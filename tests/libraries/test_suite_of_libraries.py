"""Our libraries keep what ``tileseer.testing`` asks of every one."""

import pyarrow.parquet as pq
from repository import CONFIG, GPUS

from tileseer.testing.library import LibrarySuite


def recorded(arch, operation):
    """Twelve kernels of a recording."""
    names = pq.read_table(CONFIG / f"recorded/{arch}/{operation}/kernels.parquet")["kernel"].to_pylist()
    two_dimensional = sorted(name for name in names if "3d" not in name)
    return tuple(two_dimensional[:: max(1, len(two_dimensional) // 12)])


class TestCkTile(LibrarySuite):
    arch, gpu = "gfx950", GPUS["gfx950_mi355x"]
    kernels = recorded("gfx950_mi355x", "forward_bf16")


class TestCutlass(LibrarySuite):
    arch, gpu = "sm_90", GPUS["sm_90_h200"]
    kernels = recorded("sm_90", "forward_bf16")


class TestMiopen(LibrarySuite):
    arch, gpu = "gfx942_miopen", GPUS["gfx942_mi300x"]
    kernels = recorded("gfx942_miopen", "forward_fp16")


class TestCudnn(LibrarySuite):
    arch, gpu = "sm_90_cudnn", GPUS["sm_90_h200"]
    kernels = recorded("sm_90_cudnn", "bwd_weight_fp16")
