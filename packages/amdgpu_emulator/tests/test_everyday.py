"""Kernels as people write them, compiled by hipcc for each GPU, against what NumPy computes of the same arguments."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from amdgpu_emulator import ARCHS, load

SOURCES = Path(__file__).with_name("everyday")
sys.path.insert(0, str(SOURCES))

import corpus  # noqa: E402


@pytest.fixture(scope="module")
def hipcc():
    """The compiler: the variable HIPCC names it, or it is in the path."""
    if found := os.environ.get("HIPCC") or shutil.which("hipcc"):
        return found
    return pytest.skip("there is no hipcc")


def test_kernels_that_are_not_optimized_run_and_are_right(hipcc, tmp_path):
    flags = ["-O0", "--offload-arch=gfx90a", "--offload-device-only", "--no-gpu-bundle-output"]
    subprocess.run([hipcc, *flags, "-o", tmp_path / "kernels.co", SOURCES / "cooperate.hip"], check=True)
    code = load(tmp_path / "kernels.co")
    # Where flags go by way of scratch memory, loops that wait for them are not known.
    names = [name for name in code.kernels if name not in ("lds_lock", "specialised_waves")]
    assert {name: wrong for name in names if (wrong := corpus.run(code, name))} == {}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("source", ["elements", "cooperate", "matrices"])
def test_everyday_kernels_run_and_are_right(hipcc, tmp_path, arch, source):
    flags = ["-O3", "-gline-tables-only", f"--offload-arch={arch}", "--offload-device-only", "--no-gpu-bundle-output"]
    subprocess.run([hipcc, *flags, "-o", tmp_path / "kernels.co", SOURCES / f"{source}.hip"], check=True)
    code = load(tmp_path / "kernels.co")
    assert len(code.kernels) >= 14 and set(code.kernels) <= set(corpus.VERIFY)
    assert {name: missing for name in code.kernels if (missing := code.missing(name))} == {}
    assert {name: wrong for name in code.kernels if (wrong := corpus.run(code, name))} == {}


def test_the_corpus_is_large_enough():
    assert len(corpus.VERIFY) >= 60
