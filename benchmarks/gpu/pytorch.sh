#!/bin/sh
# The tests of PyTorch on a GPU, and what is asked of torch_steps.py.
#
#     benchmarks/gpu/pytorch.sh FOLDER OUT [arguments of torch_steps.py]
#
# FOLDER has wheels of what Python lacks there (whl/) and the published models of cuDNN's plans (model.tar.xz).
set -u
folder=$1 out=$2
shift 2
site=$(mktemp -d) model=$(mktemp -d)
python3 -m pip install -q --no-index --no-deps --no-compile --upgrade --target "$site" "$folder"/whl/*.whl || exit 1
tar -C "$model" -xf "$folder/model.tar.xz" || exit 1
export PYTHONPATH="$PWD/src:$site" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
nvidia-smi --query-gpu=name,driver_version,clocks.sm,temperature.gpu,power.draw --format=csv > "$out/gpu.log"
python3 - "$model" << 'END' || exit 1 # before any time of the GPU is spent: can the model rank here?
import sys
from pathlib import Path
from tileseer.problems.problem import Problem
from tileseer.serve.selector import Selector
for operation in ("forward_bf16", "bwd_data_bf16", "bwd_weight_bf16"):
    selector = Selector.read(Path(sys.argv[1]), operation)
    sizes = {"N": 8, "C": 64, "K": 64, "Hi": 28, "Wi": 28, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1}
    problem = Problem.from_dims(*operation.rsplit("_", 1), **sizes)
    names = [name.partition("_2d_")[2] for name in selector.kernels if "_2d_" in name]
    assert selector.shortlist(problem, 4, names, selector.library)
END
timeout "${TESTS_SECONDS:-170}" python3 -m pytest -v -n 6 -p no:cacheprovider --timeout 150 --durations=12 \
    tests/pytorch/test_on_gpu.py > "$out/tests.log" 2>&1
tail -n 45 "$out/tests.log" | cut -c1-300
python3 benchmarks/gpu/torch_steps.py "$model" --output "$out/steps.json" "$@" 2>&1 | tee "$out/steps.log" | cut -c1-1500
nvidia-smi --query-gpu=clocks.sm,temperature.gpu,power.draw --format=csv >> "$out/gpu.log"
