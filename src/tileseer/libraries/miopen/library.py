"""The door to the library (``libraries.library.Library`` says what the parts are)."""

from tileseer.libraries.library import Library
from tileseer.libraries.miopen import features
from tileseer.libraries.miopen.driver_lines import DRIVER_WITHOUT_NAME, FIND_DB_KEY, MIOPEN_DRIVER
from tileseer.libraries.miopen.kernel import Solver
from tileseer.libraries.miopen.rules import RULES

MIOPEN = Library(
    "miopen",
    "MIOpen",
    "*_miopen",
    Solver,
    RULES,
    {"miopen": features.MIOPEN_FEATURES, "miopen_layouts": features.MIOPEN_LAYOUTS},
    layout="NCHW",
    has_networks=False,
    forms=(MIOPEN_DRIVER, DRIVER_WITHOUT_NAME, FIND_DB_KEY),
    program=MIOPEN_DRIVER.name,
    device="tileseer.libraries.miopen.device:SolverDevice",
    importers={"find-db": "tileseer.libraries.miopen.importer"},
    installed="tileseer.libraries.miopen.installed:import_installed",
    installed_gpus="gfx*",
    exporters={
        "miopen": "tileseer.libraries.miopen.exporter",
        "hipdnn": "tileseer.libraries.miopen.hipdnn",
    },
    examples={
        "run": "--arch installed_miopen --gpu gfx942",
        "tune": "results/models/gfx942_miopen --problems training.log --driver /opt/rocm/bin/MIOpenDriver",
    },
    use="nothing to compile; `tileseer export miopen` writes the picks into MIOpen's own database (docs/amd.md)",
    naming="A candidate ends with MIOpen's name of the solver, by which `miopenConvolution*GetSolution` has it.",
)
