#!/bin/bash
# Measures cuDNN's plans for a few problems on a GPU machine without a network, from the problems to the models, in the
# root of this repository: cudnn.sh CARRIED OUT SECONDS
# CARRIED is a folder with whl.tar.xz: the Python packages that the machine lacks, nvidia-cudnn-frontend among them. The
# machine has nvcc, cuDNN and Python. OUT gets journals, logs, datasets and models. A second run has nothing to do.
set -uo pipefail
carried=$(realpath "$1") out=$(realpath "$2") seconds=$3
state=${TILESEER_STATE:-/tmp/tileseer-cudnn}
mkdir -p "$state/bin" "$out"
exec > >(tee "$out/cudnn.log") 2>&1

tar -xJf "$carried/whl.tar.xz" -C "$state" || exit 1
python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$state/site" "$state"/whl/*.whl || exit 1
# No link to Python's program, which finds its environment beside the path that it was called by.
printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v python3)" > "$state/bin/python" && chmod +x "$state/bin/python"
mkdir -p "$state/site/tileseer-0.dist-info"
printf 'Metadata-Version: 2.1\nName: tileseer\nVersion: 0\n' > "$state/site/tileseer-0.dist-info/METADATA"
export PYTHONUNBUFFERED=1 PYTHONPATH=$PWD/src:$state/site PATH=$state/site/bin:$state/bin:$PATH
cuda=$(dirname "$(nvcc --dryrun -E x.cu 2>&1 | sed -n "s/^#\$ _HERE_=//p")")
libraries=$(python3 -c 'import glob, sysconfig; print(":".join(glob.glob(sysconfig.get_path("purelib") + "/nvidia/*/lib")))')
export LD_LIBRARY_PATH=$cuda/lib64:$libraries:${LD_LIBRARY_PATH:-}

nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv
python3 -c 'import cudnn; print("cuDNN", cudnn.backend_version(), "frontend", cudnn.__version__)' || exit 1
nvcc --version | tail -1
nvidia-smi --query-gpu=timestamp,clocks.sm,power.draw,temperature.gpu,clocks_event_reasons.active,utilization.gpu \
    --format=csv,noheader -l 2 > "$out/gpu.log" 2>&1 &
watcher=$!

run() {
    timeout --kill-after=10 "$1" python3 -m tileseer.cli.main run results/models/sm_90_cudnn --keep-going --scheduler greedy \
        --configfile config/cudnn.yaml benchmarks/gpu/cudnn_small.yaml
    echo "exit status $? after $SECONDS s"
}

run "$seconds"
grep -h "" logs/sm_90_cudnn/*/*/*.log logs/sm_90_cudnn/*/*.log | tail -n 60
run 60
kill "$watcher"
grep -A9 by_status results/benchmark/sm_90_cudnn/*/*.json
tar -cJf "$out/cudnn.tar.xz" logs results/journals results/benchmark results/build results/support results/datasets \
    results/validation results/models results/problems
ls -l "$out"
