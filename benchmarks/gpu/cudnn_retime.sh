#!/bin/bash
# What one call on a GPU machine without a network does, in the root of this repository: cudnn_retime.sh CARRIED OUT SECONDS NETWORK...
# Times what models pick (cudnn_plans.retime) on all GPUs but the first for SECONDS at most, and beside it the convolutions of whole
# networks (examples/cudnn_pick.py) on the first one; with a single GPU, one after the other.
# CARRIED is a folder with the wheel of nvidia-cudnn-frontend and the published models sm_90_cudnn.
set -uo pipefail
carried=$(realpath "$1") out=$(realpath "$2") seconds=$3
site=${TILESEER_STATE:-/tmp/tileseer-state}/cudnn
mkdir -p "$out" "$site"
python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$site" "$carried"/*.whl || exit 1
export PYTHONUNBUFFERED=1 PYTHONPATH=$PWD/src:$PWD/benchmarks/gpu:$site
mapfile -t gpus < <(nvidia-smi --query-gpu=uuid --format=csv,noheader)
nvidia-smi --query-gpu=timestamp,index,clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_event_reasons.active,utilization.gpu \
    --format=csv,noheader -l 5 > "$out/gpu.log" 2>&1 &
watcher=$!
CUDA_VISIBLE_DEVICES=${gpus[0]} timeout "$seconds" python3 examples/cudnn_pick.py "$carried/sm_90_cudnn" "${@:4}" > "$out/networks.log" 2>&1 &
example=$!
((${#gpus[@]} > 1)) || wait "$example"
rest=("${gpus[@]:1}")
python3 -m cudnn_plans.retime --models "$carried/sm_90_cudnn" --output "$out" --seconds "$((seconds - SECONDS))" \
    --gpus "${rest[@]:-${gpus[0]}}" > "$out/retime.log" 2>&1
status=$?
wait "$example"
kill "$watcher"
rm -r "$out/built"
tail -n 40 "$out"/{networks,retime}.log
exit "$status"
