#!/bin/bash
# What one call on a GPU machine without a network does, in the root of this repository: harness.sh CARRIED OUT STEP...
#   check RUN STEP...  check the harness (check_harness.py) with some of its steps; to the end of the line
#   measure SECONDS KILL  the workflow of TILESEER_CONFIG up to its report, on all GPUs, for SECONDS at most; with KILL
#                   above 0 everything is killed after KILL seconds of measuring, until then on TILESEER_FIRST_GPUS
#                   GPUs, and goes on; the next call resumes
#   also CONFIG TARGET  the workflow of another overlay up to a target
#   apart NAME CONFIG TARGET  the same in a folder NAME of its own, with results of its own
#   loss FULL BUDGET  compare the results of two folders of such steps (budget_loss.py)
#   two_times       measure one pair over and over (two_times.py)
#   quick           tileseer bench --quick with a module of the workflow
#   jobs            the log of the jobs: which GPU each had when
#   rest            the same workflow once more: there is nothing to do; and with its last two outputs gone
#   keep            logs, receipts, validation, models and report
#   finish          cuDNN's times, an operation a GPU; the recording; the log of the jobs
#   cache           keep what was compiled, for CARRIED of the next call
# CARRIED is a folder with the wheels that the machine lacks (whl/ in whl.tar.xz), CUTLASS's headers (cutlass.tar.xz) and what was
# compiled before, if anything (cache.tar.xz); OUT is kept.
set -uo pipefail
carried=$(realpath "$1") out=$(realpath "$2")
shift 2
state=${TILESEER_STATE:-/tmp/tileseer-state}
config=${TILESEER_CONFIG:-benchmarks/gpu/h200.yaml}
mkdir -p "$state"
gpus=${TILESEER_GPUS:-$(nvidia-smi -L | wc -l)}

install() {
    if [ ! -e "$state/site" ]; then
        tar -xJf "$carried/whl.tar.xz" -C "$state" || exit 1
        python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$state/site" "$state"/whl/*.whl || exit 1
        # What Python's metadata has of an installed package.
        mkdir "$state/site/tileseer-0.dist-info"
        printf 'Metadata-Version: 2.1\nName: tileseer\nVersion: %s\n' "$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)" \
            > "$state/site/tileseer-0.dist-info/METADATA"
        mkdir "$state/cutlass" && tar -xJf "$carried/cutlass.tar.xz" -C "$state/cutlass" || exit 1
        if [ -e "$carried/cache.tar.xz" ]; then
            tar -xJf "$carried/cache.tar.xz" -C "$state" || exit 1
        fi
    fi
    # No link to Python's program, which finds its environment beside the path that it was called by.
    mkdir -p "$state/bin" && rm -f "$state/bin/python"
    printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v python3)" > "$state/bin/python" && chmod +x "$state/bin/python"
    export PYTHONPATH=$PWD/src:$state/site PATH=$state/site/bin:$state/bin:$PATH
    export CUTLASS_PATH=$state/cutlass XDG_CACHE_HOME=$state/cache
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

rows() {
    python3 -c "from pathlib import Path
from tileseer.core.journal_files import journals_in
from tileseer.measure.journal import read_journal
print(sum(read_journal(path)[0].num_rows for folder in Path('results/journals/sm_90').glob('*') for path in journals_in(folder)))"
}

workflow() { # CONFIG TARGET...; CONFIG may be several files
    # shellcheck disable=SC2086
    snakemake --cores "$(nproc)" --resources gpu="$gpus" mem_mb=400000 --rerun-incomplete --keep-going \
        --configfile $1 -- "${@:2}" >> "$out/workflow.log" 2>&1
}

begin_workflow() { # a process group of its own, so that all of it can be killed
    export -f workflow
    export out gpus
    setsid bash -c 'workflow "$@"' workflow "$config" results/models/sm_90 results/reports/sm_90.html &
    workflow=$!
}

kill_workflow() {
    kill -KILL -- -"$workflow"
    wait "$workflow" 2> /dev/null
    clock "killed; rows $(rows)"
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
    measure)
        deadline=$((SECONDS + $1)) kill_after=$2
        shift 2
        watch_gpu "$out/measure.gpu.log"
        all=$gpus
        [ "$kill_after" -gt 0 ] && gpus=${TILESEER_FIRST_GPUS:-$all}
        begin_workflow
        while kill -0 "$workflow" 2> /dev/null; do
            sleep 1
            [ "$SECONDS" -ge "$deadline" ] && kill_workflow && break
            if [ "$(rows)" -gt 0 ] && [ -z "${first_row:-}" ]; then first_row=$SECONDS; clock first rows; fi
            if [ "$kill_after" -gt 0 ] && [ -n "${first_row:-}" ] && [ $((SECONDS - first_row)) -ge "$kill_after" ]; then
                kill_after=0
                kill_workflow
                gpus=$all
                begin_workflow
            fi
        done
        clock "rows $(rows), receipts $(ls results/benchmark/sm_90/*/*.json 2> /dev/null | wc -l)"
        kill "$watcher"
        tail -n 15 "$out/workflow.log"
        tail -qn 1 logs/sm_90/*/benchmark/*.log
        ;;
    also)
        workflow "$1" "$2"
        echo "exit status $?"
        tail -n 4 "$out/workflow.log"
        shift 2
        ;;
    apart)
        folder=$state/$1
        mkdir "$folder" && tar -cf - --exclude=./results --exclude=./logs --exclude=./.snakemake . | tar -xf - -C "$folder"
        (cd "$folder" && PYTHONPATH=$folder/src:$state/site workflow "$2" "$3"; echo "exit status $?")
        tail -n 4 "$out/workflow.log"
        tail -qn 1 "$folder"/logs/sm_90/*/benchmark/*.log
        shift 3
        ;;
    loss)
        python3 benchmarks/gpu/budget_loss.py --full "$state/$1/results" --budget "$state/$2/results"
        shift 2
        ;;
    two_times)
        libraries=results/libraries/sm_90 build=results/build/sm_90/bwd_data_bf16/1.parquet
        python3 benchmarks/gpu/two_times.py --driver $libraries/driver.so --module $libraries/bwd_data_bf16/1.so --build $build \
            --settings '{"min_time_ms": 1, "sample_ms": 0.1, "min_samples": 3, "max_samples": 100, "budget_ms": 100}'
        ;;
    jobs)
        python3 benchmarks/gpu/record.py --jobs
        ;;
    cache)
        (cd "$state" && tar -cf - cache $(ls check/*.so 2> /dev/null)) | xz -T0 -4 > "$out/cache.tar.xz"
        ;;
    finish)
        gpu=0
        for op in $(ls results/benchmark/sm_90); do
            CUDA_VISIBLE_DEVICES=$gpu python3 benchmarks/gpu/cudnn_baseline.py \
                --problems "results/problems/$op.parquet" --seconds 100 --output "$state/$op.cudnn.csv" 2>&1 | sed "s/^/$op: /" &
            gpu=$(((gpu + 1) % gpus))
            [ "$gpu" -ne 0 ] || wait
        done
        python3 benchmarks/gpu/record.py --output "$state/recorded" \
            --note "gpu=$(nvidia-smi --query-gpu=name,memory.total,clocks.max.sm,power.limit --format=csv | sort -u | tr '\n' ';')" \
            --note "gpu_driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)" \
            --note "clocks=not locked" \
            --note "compiler=$(nvcc --version | tail -1), flags of tileseer.compile.objects" \
            --note "kernels=CUTLASS 4.2.0 headers (PyPI nvidia-cutlass 4.2.0.0), 2.x implicit-GEMM templates" \
            --note "cudnn=benchmarks/gpu/cudnn_baseline.py, after the kernels, on the same machine" \
            --note "harness=the workflow, $config, commit ${TILESEER_COMMIT:-unknown}" --note "logs=benchmarks/gpu/logs/workflow"
        wait
        for file in "$state"/*.cudnn.csv; do cp "$file" "$state/recorded/$(basename "$file" .cudnn.csv)/cudnn.csv"; done
        tar -cf "$out/recorded.tar" -C "$state" recorded
        grep -rhE --include=*.details.jsonl '"event": "(session|drift)"' results/journals/sm_90 | gzip -9 > "$out/sessions.jsonl.gz"
        ;;
    rest)
        for gone in nothing results/models results/reports; do
            rm -rf "$gone"
            workflow "$config" results/models/sm_90 results/reports/sm_90.html
            echo "exit status $?"
            grep -E 'Nothing to be done|restored' "$out/workflow.log" | tail -n 3
        done
        ;;
    keep)
        tar -czf "$out/results.tar.gz" logs results/validation results/models results/build results/benchmark results/reports
        ;;
    quick)
        for cache in cold warm; do
            python3 -m tileseer.cli.main bench --quick --cache $cache --kernels 6 \
                --driver results/libraries/sm_90/driver.so --module "$(ls results/libraries/sm_90/forward_bf16/*.so | head -1)"
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
