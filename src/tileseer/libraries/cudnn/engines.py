"""cuDNN's engines for convolutions, the knobs whose meaning its headers tell, and limits of workspace.

Engines are those that cuDNN 9.19 offered on an H200 (config/recorded/sm_90_cudnn). Their numbers are cuDNN's own and
mean something else in another direction; of another version they need not mean the same.
"""

ENGINES = {
    0: 0, 1: 5, 2: 2, 3: 0, 5: 0, 6: 0, 9: 24, 10: 24, 16: 0, 17: 0, 19: 5, 20: 0, 22: 17, 23: 9, 25: 3, 27: 2,
    28: 5, 33: 8, 37: 15, 39: 15, 40: 17, 43: 3, 45: 8, 46: 17, 47: 16, 49: 8, 50: 0, 57: 8, 58: 0, 59: 5, 61: 6,
    62: 21, 63: 0, 64: 8, 65: 10, 67: 17, 70: 0, 71: 0, 73: 17, 78: 0,
}  # fmt: skip
"""Number of an engine to how many settings of its tile (``TILE``) are told apart; 0 where it has no such knob."""

SPLIT_K, TILE, BLOCK_K, TILE_K, STAGES = 0, 2, 5, 13, 14
SPLIT_K_SLICES, WORKSPACE, CLUSTER_M, CLUSTER_N = 17, 25, 27, 28
"""Knobs by cuDNN's numbers (``cudnnBackendKnobType_t``)."""

MEASURED_WORKSPACE_BYTES = 4 << 30
"""Workspace up to which a plan is measured."""

_FIRST_ENGINE: dict[int, int] = {}
for _engine, _tiles in ENGINES.items():
    _FIRST_ENGINE[_engine] = sum(ENGINES[other] + 2 for other in _FIRST_ENGINE)


def tile_code(engine: int, tile: int | None) -> int:
    """Return one number for an engine and its tile; a tile beyond the table has the engine's last number."""
    return _FIRST_ENGINE[engine] + (0 if tile is None else 1 + min(tile, ENGINES[engine]))
