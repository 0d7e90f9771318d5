#!/bin/bash
# What one call on the GPU machine does: session.sh FOLDER OUT STEP...
#   build OP...                compile the kernels of each operation, keep the libraries
#   smoke OP                   a dozen problems with every kernel, and cuDNN on a few
#   measure OP SECONDS         go on with the journal of an operation; then cuDNN on its validation problems
#   noise OP RUN               the pairs of the noise study, cold and warm
# FOLDER is what prepare.py wrote, with the libraries and journals of earlier calls in it; OUT is what is kept.
set -uo pipefail
folder=$1 out=$2
shift 2
mkdir -p "$folder/state" "$out"
state=$folder/state

describe() {
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.memory,power.limit,ecc.mode.current,mig.mode.current,compute_mode --format=csv
    nvidia-smi --query-compute-apps=pid,used_memory --format=csv
    nvcc --version | tail -2
    nproc
}

watch_gpu() { # FILE: clocks, power, temperature and throttle reasons, every five seconds
    nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_event_reasons.active,utilization.gpu \
        --format=csv,noheader -l 5 > "$1" 2>&1 &
    watcher=$!
}

unpack() { # OP
    if [ ! -e "$state/$1.so" ] && [ -e "$folder/kept/$1.so.gz" ]; then gunzip -c "$folder/kept/$1.so.gz" > "$state/$1.so"; fi
    for file in "$1.csv" "$1.cudnn.csv"; do
        if [ ! -e "$state/$file" ] && [ -e "$folder/kept/$file.gz" ]; then gunzip -c "$folder/kept/$file.gz" > "$state/$file"; fi
    done
}

keep() { # FILE
    gzip -9 -n -c "$state/$1" > "$out/$1.gz"
}

worker() {
    if [ ! -e "$state/worker" ]; then
        nvcc -O3 -std=c++17 -gencode arch=compute_90,code=sm_90 -I "$folder/include" "$folder/worker.cu" -o "$state/worker" -ldl || exit 1
    fi
}

describe
worker
while [ $# -gt 0 ]; do
    step=$1
    shift
    date -u "+%H:%M:%S $step $*"
    case $step in
    build)
        for op in "$@"; do
            python3 "$folder/build.py" --folder "$folder" --operation "$op" --output "$state/$op.objects" || exit 1
            cp "$state/$op.objects/$op.so" "$state/$op.so"
            keep "$op.so"
            cp "$state/$op.objects/$op.build.csv" "$out/"
            "$state/worker" --resources "$state/$op.so" > "$out/$op.resources.csv"
        done
        shift $#
        ;;
    smoke)
        op=$1
        shift
        unpack "$op"
        python3 "$folder/campaign.py" --worker "$state/worker" --library "$state/$op.so" --plan "$folder/plans/$op.smoke.plan" \
            --journal "$state/$op.smoke.csv" --seconds 60
        cp "$state/$op.smoke.csv" "$out/"
        head -5 "$folder/plans/$op.validation" > "$state/few"
        python3 "$folder/cudnn_baseline.py" --plan "$folder/plans/$op.plan" --problems "$state/few" --seconds 30 --output "$state/$op.few.csv"
        cat "$state/$op.few.csv"
        ;;
    measure)
        op=$1 seconds=$2 baseline=$3
        shift 3
        unpack "$op"
        watch_gpu "$out/$op.gpu.log"
        python3 "$folder/campaign.py" --worker "$state/worker" --library "$state/$op.so" --plan "$folder/plans/$op.plan" \
            --journal "$state/$op.csv" --seconds "$seconds"
        keep "$op.csv"
        touch "$state/$op.cudnn.csv"
        python3 "$folder/cudnn_baseline.py" --plan "$folder/plans/$op.plan" --problems "$folder/plans/$op.validation" \
            --seconds "$baseline" --output "$state/$op.cudnn.csv"
        keep "$op.cudnn.csv"
        kill $watcher
        wc -l "$state/$op.csv" "$state/$op.cudnn.csv"
        ;;
    noise)
        op=$1 run=$2
        shift 2
        unpack "$op"
        for mode in cold warm; do
            python3 "$folder/campaign.py" --worker "$state/worker" --library "$state/$op.so" --plan "$folder/plans/$op.noise.plan" \
                --journal "$state/$op.noise.$mode.$run.csv" --seconds 60 --mode $mode
            cp "$state/$op.noise.$mode.$run.csv" "$out/"
        done
        ;;
    *)
        echo "unknown step $step"
        exit 2
        ;;
    esac
done
date -u "+%H:%M:%S end"
