#!/bin/sh
# Make the virtual environment: every package in the locked version and checked against its hash.
# usage: envs/setup.sh FOLDER      (PYTHON names the interpreter, 3.11 to 3.13)
set -eu
venv=${1:?usage: $0 FOLDER}
python=${PYTHON:-python3}

fail() {
    echo "error: $*" >&2
    exit 1
}

"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' ||
    fail "$python must be Python 3.11 to 3.13; name another one with PYTHON=..."
"$python" -m venv --clear "$venv" ||
    fail "the venv module of $python does not work; on Debian and Ubuntu: apt-get install python3-venv"
pip="$venv/bin/python -m pip --disable-pip-version-check --no-input"
# setuptools first: the one package that has no wheel is then built with this version and no other.
awk '/^[a-z]/ { wanted = /^setuptools==/ } wanted' envs/requirements.lock > "$venv/setuptools.lock"
echo "installing the locked packages into $venv"
$pip install --quiet --require-hashes --requirement "$venv/setuptools.lock"
$pip install --quiet --require-hashes --no-build-isolation --use-pep517 \
    --requirement envs/requirements.lock
$pip install --quiet --no-deps --no-build-isolation --editable .
"$venv/bin/python" envs/openmp.py
