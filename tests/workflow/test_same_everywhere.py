"""A run has the same bytes on processors with AVX-512, with AVX2 and without both."""

import subprocess
import sys

from small_workflow import ROOT, hashes

WITHOUT_AVX512 = "X86_V4 AVX512_ICL AVX512_SPR"
WITHOUT_FMA = {
    "NPY_DISABLE_CPU_FEATURES": f"X86_V3 {WITHOUT_AVX512}",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2,-AVX512F,-AVX",
    "OPENBLAS_CORETYPE": "Nehalem",
    "OMP_NUM_THREADS": "2",
}
DRAWN = f"""
import sys
import numpy as np
from pathlib import Path
from tileseer.facts.operations import VARIANTS
from tileseer.problems import design, layers
from tileseer.problems.operation import Operation

# NumPy ignores a feature that it does not know: ask it which are on.
features = np._core._multiarray_umath.__cpu_features__
assert not any(features[name] for name in sys.argv[1:]), sys.argv
table = Path({str(ROOT / "config/problems/layers.csv")!r})
train = [layer for layer in layers.read_layers(table) if layer.split == "train"]
for variant in VARIANTS:
    for problem in design.draw_design(train, Operation(variant, "bf16"), [2, 3], 200, 1):
        print(problem.key)
"""


def drawn(workflow, variables, off):
    """Return the keys of problems that are drawn, by a process without some features of the processor."""
    call = [sys.executable, "-c", DRAWN, *off]
    return subprocess.check_output(call, env=workflow.environment() | variables, text=True)


def test_drawn_problems_are_the_same_on_other_processors(made):
    own = drawn(made[0], {}, [])
    assert len(own.splitlines()) > 500
    assert own == drawn(made[0], {"NPY_DISABLE_CPU_FEATURES": WITHOUT_AVX512}, ["X86_V4"])
    assert own == drawn(made[0], WITHOUT_FMA, ["X86_V4", "X86_V3"])


def test_a_run_has_the_same_bytes_without_avx2_and_fma(made, fresh):
    run = fresh.start(variables=WITHOUT_FMA)
    output, _ = run.communicate(timeout=300)
    assert run.returncode == 0, output
    assert hashes(made[0]) == hashes(fresh)
