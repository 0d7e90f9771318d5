#!/bin/bash
# What one call on a GPU machine without a network does, in the root of this repository: harness.sh CARRIED OUT STEP...
#   check RUN STEP...  check the harness (check_harness.py) with some of its steps; to the end of the line
#   quick           tilewright bench --quick with one module
# CARRIED is a folder with the wheels that the machine lacks (whl/) and CUTLASS's headers (cutlass.tar.xz); OUT is kept.
set -uo pipefail
carried=$(realpath "$1") out=$(realpath "$2")
shift 2
state=${TILEWRIGHT_STATE:-/tmp/tilewright-state}
mkdir -p "$state"

install() {
    if [ ! -e "$state/site" ]; then
        python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$state/site" "$carried"/whl/*.whl || exit 1
        mkdir "$state/cutlass" && tar -xJf "$carried/cutlass.tar.xz" -C "$state/cutlass" || exit 1
    fi
    export PYTHONPATH=$PWD/src:$state/site PATH=$state/site/bin:$PATH
    local cuda
    cuda=$(dirname "$(nvcc --dryrun -E x.cu 2>&1 | sed -n "s/^#\$ _HERE_=//p")")
    export LD_LIBRARY_PATH=$cuda/lib64:/usr/local/cuda/lib64:${LD_LIBRARY_PATH:-}
}

describe() {
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.memory,power.limit,ecc.mode.current,mig.mode.current,compute_mode --format=csv
    nvidia-smi --query-compute-apps=pid,used_memory --format=csv
    nvcc --version | tail -2
    nproc
}

watch_gpu() { # FILE: clocks, power, temperature and throttle reasons of each GPU, every five seconds
    nvidia-smi --query-gpu=index,clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_event_reasons.active,utilization.gpu \
        --format=csv,noheader -l 5 > "$1" 2>&1 &
    watcher=$!
}

clock() { date -u "+%H:%M:%S $*"; }

clock start
describe
install
while [ $# -gt 0 ]; do
    step=$1
    shift
    clock "$step" "$*"
    case $step in
    check)
        run=$1
        shift
        settings='{"min_time_ms": 1, "sample_ms": 0.1, "min_samples": 5, "max_samples": 100, "budget_ms": 200, "hopeless_factor": 3, "sentinel_every": 256}'
        watch_gpu "$out/check.$run.gpu.log"
        python3 benchmarks/gpu/check_harness.py --cutlass "$state/cutlass/include" --work "$state/check" --output "$out" --run "$run" --settings "$settings" --steps "$@"
        shift $#
        echo "exit status $?"
        kill "$watcher"
        if ls "$out"/*.details.jsonl > /dev/null 2>&1; then gzip -9 -n "$out"/*.details.jsonl; fi
        ;;
    quick)
        modules=$(ls "$state"/check/cutlass_conv_fwd_bf16_nhwc*.so | head -4 | sed 's/^/--module /')
        for cache in cold warm; do
            python3 -m tilewright.cli bench --quick --driver "$state/check/driver.so" $modules --cache $cache
            echo "exit status $?"
        done
        ;;
    *)
        echo "unknown step $step"
        exit 2
        ;;
    esac
done
clock end
