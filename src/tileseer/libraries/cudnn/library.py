"""The door to the library (``libraries.library.Library`` says what the parts are)."""

from tileseer.libraries.cudnn import features, times
from tileseer.libraries.cudnn.kernel import Plan
from tileseer.libraries.library import Library
from tileseer.libraries.rules import OPERATION, Rules

RULES = Rules((OPERATION,), lambda candidates, wave_size: {}, lambda dims, variant, element_size: {"G": dims["G"]})
"""cuDNN itself says which plans can run a problem; the rule only compares what a plan is written for."""

FRONTEND = "pip install nvidia-cudnn-frontend nvidia-cudnn-cu13"
"""Brings cuDNN and its Python frontend."""
CUDNN = Library(
    "cudnn",
    "cuDNN",
    "*_cudnn",
    Plan,
    RULES,
    {"cudnn": features.CUDNN_FEATURES},
    plans="tileseer.libraries.cudnn.device_plans:CudnnPlans",
    modules={"cudnn": FRONTEND},
    read_times=times.read_times,
    times_files=(times.CUDNN_FILE, times.CHOICES_FILE),
    measuring=("tileseer/libraries/cudnn/device_plans.py", "tileseer/libraries/cudnn/engines.py"),
    measured_with=("cuda", "config/cudnn.yaml"),
    use="nothing to compile; cuDNN builds a plan from the name that a selector picks (docs/nvidia.md)",
)
