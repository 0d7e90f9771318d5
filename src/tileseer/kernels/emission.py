"""The emitter of each family whose kernels are made here."""

from tileseer.kernels.ck_tile.emit import CkTileEmitter
from tileseer.kernels.cutlass.emit import CutlassEmitter
from tileseer.kernels.emitter import Emitter

EMITTERS: dict[str, type[Emitter]] = {"ck_tile": CkTileEmitter, "cutlass": CutlassEmitter}
