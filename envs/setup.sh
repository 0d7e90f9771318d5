#!/bin/sh
# Make the virtual environment, every package in the locked version and checked against its hash; or let it grow.
# usage: envs/setup.sh new FOLDER      what users need, envs/requirements.lock (PYTHON: the interpreter, 3.11 to 3.13)
#        envs/setup.sh grow FOLDER     what developers need as well, envs/requirements-dev.lock
#        envs/setup.sh check FOLDER    nothing: will the interpreter do?
set -eu
what=${1:?usage: $0 new|grow|check FOLDER}
venv=${2:?usage: $0 new|grow|check FOLDER}
python=${PYTHON:-python3}

fail() {
    echo "error: $*" >&2
    exit 1
}

step() {
    echo "==> $*"
}

# pip's warnings about mirrors that lack a package say nothing that a user could use; errors come through.
pip() {
    "$venv/bin/python" -m pip --disable-pip-version-check --no-input --quiet --quiet install "$@"
}

size() {
    du -sm "$venv" | cut -f1
}

if [ "$what" = grow ]; then
    step "adding the packages for developers to $venv (1 minute)"
    pip --require-hashes --requirement envs/requirements-dev.lock
    step "$venv is ready: $(size) MB"
    exit
fi

"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2> /dev/null ||
    fail "$python is no Python 3.11 to 3.13 here; name another one, such as PYTHON=python3.11"
[ "$what" = new ] || exit 0
step "making $venv with $("$python" --version)"
"$python" -m venv --clear "$venv" ||
    fail "the venv module of $python does not work; on Debian and Ubuntu: apt-get install python3-venv"
step "installing $(grep -c '==' envs/requirements.lock) locked packages (200 MB to fetch, 1 minute)"
# setuptools first: the one package that has no wheel is then built with this version and no other.
awk '/^[a-z]/ { wanted = /^setuptools==/ } wanted' envs/requirements.lock > "$venv/setuptools.lock"
pip --require-hashes --requirement "$venv/setuptools.lock"
pip --require-hashes --no-compile --no-build-isolation --use-pep517 --requirement envs/requirements.lock
pip --no-deps --no-build-isolation --editable . --editable packages/amdgpu_emulator --editable packages/tileseer_emulated
# Their tests, Arrow's headers, network server and cloud storage, solvers for other systems.
step "removing what the packages bring and nothing here loads"
cd "$venv"/lib/python3*/site-packages
for package in numpy pandas pyarrow scipy; do
    find "$package" -type d -name tests -prune -exec rm -r {} +
done
rm -r pyarrow/include pyarrow/*flight* pyarrow/*arrow_s3* pyarrow/*_s3fs*
rm -r pulp/solverdir/cbc/osx pulp/solverdir/cbc/win pulp/solverdir/cbc/linux/i32
cd "$OLDPWD"
step "checking that all of it loads"
"$venv/bin/python" envs/openmp.py
# Written here, once: the byte code of what is used.
env -u PYTHONDONTWRITEBYTECODE "$venv/bin/python" -c "
import elftools.elf.sections, filelock, jinja2, lightgbm, msgpack, pandas, pyarrow.compute, pyarrow.csv
import pyarrow.dataset, pyarrow.parquet, pydantic, rich.progress, rich.table, scipy.stats, yaml
import snakemake.cli, snakemake.report, smart_open"
step "$venv is ready: $(size) MB"
