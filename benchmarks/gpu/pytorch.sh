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
timeout 170 python3 -m pytest -q -p no:cacheprovider --durations=8 tests/pytorch/test_on_gpu.py > "$out/tests.log" 2>&1
tail -n 40 "$out/tests.log"
python3 benchmarks/gpu/torch_steps.py "$model" --output "$out/steps.json" "$@" 2>&1 | tee "$out/steps.log" | cut -c1-1500
nvidia-smi --query-gpu=clocks.sm,temperature.gpu,power.draw --format=csv >> "$out/gpu.log"
