#!/bin/sh
# The workflow as three jobs, each of which runs its part with as many workers as it has cores. For sites that limit the
# number of jobs or of calls of the controller. Fit the options to the site; called again it goes on where it stopped.
# usage: sh profiles/MY-SITE/few-jobs.sh TARGET...     in the folder of the workflow, where snakemake is on the PATH
set -eu
: "${1:?usage: sh $0 TARGET...}"
build="--partition=cpu --cpus-per-task=16 --mem=32000 --time=720"
measure="--partition=gpu --gres=gpu:1 --cpus-per-task=8 --mem=16000 --time=1440"
learn="--partition=memory --cpus-per-task=16 --mem=64000 --time=480"

if ! scontrol ping 2> /dev/null | grep -q "is UP"; then
    echo "error: no controller of SLURM answers here; call $0 on a login node of the cluster" >&2
    exit 1
fi
if ! [ -f Snakefile ]; then
    echo "error: no Snakefile is here; call $0 in the folder of the workflow" >&2
    exit 1
fi
# What cannot be made is told here, and not by a job that waited for hours.
snakemake --cores 1 --dry-run --quiet all -- "$@"
targets=
for target; do
    targets="$targets '$target'"
done
mkdir -p logs/slurm
previous=
part() {
    name=$1 options=$2 words=$3
    # shellcheck disable=SC2086  # options are words
    job=$(sbatch --parsable --requeue --kill-on-invalid-dep=yes --output=logs/slurm/%j.log --job-name="tileseer $name" \
        $options ${previous:+--dependency=afterok:$previous} \
        --wrap="snakemake --cores \"\$SLURM_CPUS_PER_TASK\" $words -- $targets")
    previous=${job%%;*}
    echo "job $previous: $name"
}
part build "$build" "--omit-from benchmark"
part measure "$measure" "--until benchmark"
part learn "$learn" ""
