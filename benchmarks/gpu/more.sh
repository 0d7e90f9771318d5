#!/bin/bash
# Measures more training problems for the recordings on a GPU machine without a network, in the root of this repository:
# more.sh CARRIED OUT SECONDS STEP...
#   compile             compile the kernels of CUTLASS in the background, if that is still to be done
#   cudnn PART OPERATION SECONDS    measure cuDNN's plans for a part of the problems, for SECONDS at most
#   cutlass PART OPERATION SECONDS  measure kernels of CUTLASS likewise; waits until they are compiled
# CARRIED has site.tar.xz, the Python packages that the machine lacks, and cutlass.tar.xz, the headers. After SECONDS
# all is ended and packed: OUT gets journals, details logs, build tables and logs. The next call goes on where this ended.
set -uo pipefail
carried=$(realpath "$1") out=$(realpath "$2") end=$3
shift 3
state=/tmp/tileseer-more
mkdir -p "$state/bin" "$out"
exec > >(tee "$out/more.log") 2>&1
clock() { date -u "+%H:%M:%S ${SECONDS} s: $*"; }

if [ ! -e "$state/site" ]; then
    tar -xJf "$carried/site.tar.xz" -C "$state" || exit 1
    tar -xJf "$carried/cutlass.tar.xz" -C "$state" || exit 1
    mkdir -p "$state/site/tileseer-0.dist-info"
    printf 'Metadata-Version: 2.1\nName: tileseer\nVersion: 0\n' > "$state/site/tileseer-0.dist-info/METADATA"
    # No link to Python's program, which finds its environment beside the path that it was called by.
    printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v python3)" > "$state/bin/python" && chmod +x "$state/bin/python"
    for folder in cutlass cudnn; do
        mkdir "$state/run_$folder"
        tar -xJf "$carried/tree.tar.xz" -C "$state/run_$folder" || exit 1
    done
fi
export PYTHONUNBUFFERED=1 PYTHONPATH=$state/run_cudnn/src:$state/site PATH=$state/bin:$PATH
export CUTLASS_PATH=$state/cutlass XDG_CACHE_HOME=$state/cache
cuda=$(dirname "$(nvcc --dryrun -E x.cu 2>&1 | sed -n "s/^#\$ _HERE_=//p")")
libraries=$(python3 -c 'import glob, sysconfig; print(":".join(glob.glob(sysconfig.get_path("purelib") + "/nvidia/*/lib")))')
export LD_LIBRARY_PATH=$cuda/lib64:$libraries:${LD_LIBRARY_PATH:-}

nvidia-smi --query-gpu=name,uuid,driver_version,memory.total,clocks.max.sm,power.limit,ecc.mode.current --format=csv
python3 -c 'import cudnn; print("cuDNN", cudnn.backend_version(), "frontend", cudnn.__version__)' || exit 1
nvcc --version | tail -1
nvidia-smi --query-gpu=timestamp,clocks.sm,power.draw,temperature.gpu,clocks_event_reasons.active,utilization.gpu \
    --format=csv,noheader -l 5 > "$out/gpu.log" 2>&1 &
watcher=$!

workflow() { # FOLDER CORES CONFIG CONFIG TARGET...: a process group of its own
    cd "$state/run_$1" && exec setsid python3 -m snakemake --cores "$2" --resources gpu=1 mem_mb=100000 --keep-going \
        --configfile "$3" "$4" -- "${@:5}"
}

step() { # SECONDS FOLDER ...: a workflow for SECONDS at most
    local deadline=$((SECONDS + $1)) group
    [ "$deadline" -gt "$end" ] && deadline=$end
    [ "$deadline" -le $((SECONDS + 5)) ] && clock "no time for ${*:2}" && return
    steps=$((steps + 1))
    workflow "${@:2}" > "$out/workflow.$steps.log" 2>&1 &
    group=$!
    while kill -0 "$group" 2> /dev/null; do
        sleep 0.5
        [ "$SECONDS" -ge "$deadline" ] && kill -KILL -- -"$group"
    done
    wait "$group" 2> /dev/null
    clock "status $?"
    grep -hE "pairs measured|offers|error:|Error" "$out/workflow.$steps.log" | cut -c1-300 | tail -n 8
    tail -n 1 "$out/workflow.$steps.log" | cut -c1-300
}

parts() { echo results/"$1"/sm_90/"$2"/{0..5}."$3"; }

steps=0 compiling=
while [ $# -gt 0 ]; do
    clock "$*"
    case $1 in
    compile)
        # shellcheck disable=SC2046
        workflow cutlass 12 benchmarks/gpu/h200.yaml benchmarks/gpu/more/cutlass.1.config.yaml \
            $(parts libraries bwd_data_bf16 so) $(parts libraries forward_bf16 so) results/libraries/sm_90/driver.so \
            > "$out/compile.log" 2>&1 &
        compiling=$!
        renice -n 10 "$compiling" > /dev/null
        shift
        ;;
    cudnn)
        step "$4" cudnn 4 config/cudnn.yaml "benchmarks/gpu/more/cudnn.$2.config.yaml" "results/benchmark/sm_90_cudnn/$3/0.json"
        shift 4
        ;;
    cutlass)
        while [ -n "$compiling" ] && kill -0 "$compiling" 2> /dev/null && [ "$SECONDS" -lt "$end" ]; do sleep 0.5; done
        clock compiled
        # shellcheck disable=SC2046
        step "$4" cutlass 14 benchmarks/gpu/h200.yaml "benchmarks/gpu/more/cutlass.$2.config.yaml" $(parts benchmark "$3" json)
        shift 4
        ;;
    *)
        echo "unknown step $1"
        break
        ;;
    esac
done
while [ -n "$compiling" ] && kill -0 "$compiling" 2> /dev/null && [ "$SECONDS" -lt "$end" ]; do sleep 0.5; done
[ -n "$compiling" ] && kill -KILL -- -"$compiling" 2> /dev/null
kill "$watcher"
clock pack
for folder in cutlass cudnn; do
    (cd "$state/run_$folder" && tar -cf - logs results/journals results/build results/support results/problems results/benchmark 2> /dev/null) \
        | xz -T0 -3 > "$out/$folder.tar.xz"
done
tail -n 3 "$out/compile.log" 2> /dev/null
ls -l "$out"
clock end
