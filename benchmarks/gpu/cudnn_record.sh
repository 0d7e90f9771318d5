#!/bin/bash
# What one call on a GPU machine without a network does, in the root of this repository: cudnn_record.sh CARRIED OUT SECONDS
# Measures cuDNN's plans on all GPUs for SECONDS at most (benchmarks/gpu/cudnn_plans). CARRIED is a folder with the wheel
# of nvidia-cudnn-frontend and with the files cases.*.jsonl.xz that earlier calls left in OUT: what is in them is not
# measured again. OUT gets one more of them, the GPUs' log and this log.
set -uo pipefail
carried=$(realpath "$1") out=$(realpath "$2") end=$3
site=${TILESEER_STATE:-/tmp/tileseer-state}/cudnn
mkdir -p "$out" "$site"

begin() {
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit,ecc.mode.current,mig.mode.current --format=csv
    nvidia-smi --query-compute-apps=pid,used_memory --format=csv
    python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$site" "$carried"/*.whl || return 1
    # The clock, power, temperature and throttle reasons of each GPU, every five seconds.
    nvidia-smi --query-gpu=timestamp,index,clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_event_reasons.active,utilization.gpu \
        --format=csv,noheader -l 5 > "$out/gpu.$$.log" 2>&1 &
    watcher=$!
}

{
    begin || exit 1
    PYTHONUNBUFFERED=1 PYTHONPATH=$PWD/src:$PWD/benchmarks/gpu:$site python3 -m cudnn_plans.record \
        --cases benchmarks/gpu/cudnn_cases.csv.xz --carried "$carried" --output "$out" --seconds $((end - SECONDS)) "${@:4}"
    status=$?
    kill "$watcher"
    nvidia-smi --query-compute-apps=pid,used_memory --format=csv
    ls -l "$out"
    exit "$status"
} 2>&1 | tee "$out/record.$$.log"
