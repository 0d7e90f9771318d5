"""Elementary functions have the same bits on every processor; tests/workflow/test_same_everywhere.py runs them."""

import re
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np
import pytest

from tileseer.core import exact

ROOT = Path(__file__).parents[2]
UNITS = 3
"""In the last place, that a result may be from the true value."""
DIGITS = 120


def series(x, first, step):
    """Return the alternating Taylor series of sine (first term x) or cosine (1)."""
    total = term = first
    count = step
    while abs(term) > Decimal(10) ** -(DIGITS - 40):
        term = -term * x * x / (count * (count + 1))
        total += term
        count += 2
    return total


TRUE = {
    "log": lambda x: x.ln(),
    "log2": lambda x: x.ln() / Decimal(2).ln(),
    "exp": lambda x: x.exp(),
    "exp2": lambda x: (x * Decimal(2).ln()).exp(),
    "sin": lambda x: series(x, x, 2),
    "cos": lambda x: series(x, Decimal(1), 1),
}
RANGES = {
    "log": (1e-300, 1e300), "log2": (1e-300, 1e300), "exp": (-700.0, 700.0), "exp2": (-1000.0, 1000.0),
    "sin": (-40.0, 40.0), "cos": (-40.0, 40.0),
}  # fmt: skip


@pytest.mark.parametrize("name", TRUE)
def test_a_function_is_near_the_true_value(name):
    low, high = RANGES[name]
    random = np.random.default_rng(1)
    spread = np.exp(random.uniform(np.log(low), np.log(high), 150)) if low > 0 else random.uniform(low, high, 150)
    x = np.concatenate([spread, 1 + random.uniform(-0.5, 1, 150), 1 + random.uniform(-1e-6, 1e-6, 20)])
    with localcontext() as context:
        context.prec = DIGITS
        true = [TRUE[name](Decimal(value)) for value in x.tolist()]
        found = getattr(exact, name)(x)
        off = [
            abs(Decimal(y) - t) / Decimal(float(np.spacing(abs(float(t)))))
            for y, t in zip(found.tolist(), true, strict=True)
        ]
    assert max(off) <= UNITS


def test_ends_and_types_are_those_of_numpy():
    ends = np.array([0.0, -1.0, np.inf, np.nan, 1.0])
    with np.errstate(all="ignore"):
        for name in ("log", "log2"):
            np.testing.assert_array_equal(getattr(exact, name)(ends), getattr(np, name)(ends))
        far = np.array([-1e9, 1e9, -np.inf, np.inf, np.nan, 0.0])
        for name in ("exp", "exp2"):
            np.testing.assert_array_equal(getattr(exact, name)(far), getattr(np, name)(far))
    powers = np.arange(-40.0, 41.0)
    np.testing.assert_array_equal(exact.log2(exact.exp2(powers)), powers)
    assert exact.exp(np.float32(1)).dtype == np.float32 and exact.exp(np.ones(2, np.float32)).dtype == np.float32


COUNTED = (
    "problems/*.py", "libraries/costs/*.py", "libraries/*/cost.py", "measure/simulated_device.py", "measure/again.py",
    "learn/*.py", "learn/learners/trees/*.py", "judge/[!p]*.py",
)  # fmt: skip
"""Modules on whose numbers files rest, below the package."""
NOT_THERE = re.compile(r"\b(?:np|numpy|math)\.(?:log\w*|exp\w*|sin|cos|tan\w*|power|float_power|hypot|cbrt|pow)\(")


def test_what_files_rest_on_uses_no_other_functions():
    modules = [path for pattern in COUNTED for path in (ROOT / "src/tileseer").glob(pattern)]
    assert len(modules) > 40
    assert not {path.name: found for path in modules if (found := NOT_THERE.findall(path.read_text()))}
