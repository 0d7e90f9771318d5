"""The door to the library (``libraries.library.Library`` says what the parts are)."""

from tileseer.libraries.ck_tile import api, cost, features, names, resources
from tileseer.libraries.ck_tile.emit import CkTileEmitter
from tileseer.libraries.ck_tile.kernel import KernelConfig
from tileseer.libraries.ck_tile.profiler_lines import CK_PROFILER
from tileseer.libraries.ck_tile.rules import RULES
from tileseer.libraries.ck_tile.sweep import CkTileSweep
from tileseer.libraries.library import Library
from tileseer.libraries.source_tree import SourceTree, brought, rocm_folders

CK_TILE = Library(
    "ck_tile",
    "CK Tile",
    "gfx*",
    KernelConfig,
    RULES,
    {"tileseer": features.TILESEER, "compiled": features.COMPILED},
    forms=(CK_PROFILER,),
    complete_name=names.complete_name,
    sweep=CkTileSweep,
    rule_set="sweep.yaml",
    emitter=CkTileEmitter,
    toolchain="hipcc",
    tree=SourceTree(
        "Composable Kernel tree",
        "ck",
        "ck_tile",
        "toolchain",
        lambda: [*rocm_folders(), brought("toolchain") / "ck"],
        api.detect_level,
    ),
    estimate=resources.estimate,
    estimates_registers=True,
    cost=cost.terms,
    in_reference_words=features.in_reference_words,
    measured_with=("hip", "config/hip.yaml"),
)
