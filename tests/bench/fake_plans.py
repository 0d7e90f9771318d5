"""A library of plans without a GPU: plans that fail, lie about support, give wrong results, need too much workspace.

As a program it is the worker of ``cudnn_plans.record``. The scenario of a case is its number of channels.
"""

import math
import os
import random
import signal
import time

from cudnn_plans import case, worker

from tileseer.devices.harness.worker import start

GOOD = [
    ("eng0_k1=0", "good", 30.0), ("eng0_k1=1", "good", 20.0), ("eng1_k2=0", "good", 24.0), ("eng1_k2=1", "good", 90.0),
    ("eng2", "good", 25.0), ("eng0_k1=1", "good", 20.0),
]  # fmt: skip
SCENARIOS = {
    2: [*GOOD, ("eng3", "unbuildable", 1.0), ("eng4", "liar", 1.0), ("eng5", "wrong", 1.0), ("eng6", "unwritten", 1.0),
        ("eng7", "hungry", 1.0)],
    3: [*GOOD, ("eng8", "deadly", 1.0)],
    4: [*GOOD, ("eng9", "hanging", 1.0)],
    5: [],
    8: [("eng14", "endless", 1.0)],
    6: [("eng10", "deadly", 1.0), ("eng11", "deadly", 1.0), ("eng12", "deadly", 1.0), ("eng13", "deadly", 1.0)],
    7: [("eng3", "unbuildable", 1.0), *GOOD],
}  # fmt: skip
TORCH = {case.DEFAULT: 40.0, case.BENCHMARK: 22.0}


class FakeBench:
    """Plans whose kinds and microseconds are listed."""

    most_launches = 10

    def __init__(self, plans):
        self._plans = plans
        self.asked = []
        self._noise = random.Random(1)

    def plans(self):
        if not self._plans:
            raise case.Refused("no engine takes this problem")
        if self._plans[0][1] == "endless":
            time.sleep(60)
        return [name for name, _, _ in self._plans]

    def build(self, plan):
        kind = self._plans[plan][1]
        if kind == "unbuildable":
            raise case.Refused("it cannot be built")
        return 1 << 40 if kind == "hungry" else 0

    def check(self, contender):
        kind = "good" if contender in TORCH else self._plans[contender][1]
        self.asked.append((contender, 1))
        if kind == "liar":
            raise case.Refused("it cannot be launched")
        if kind == "deadly":
            os.kill(os.getpid(), signal.SIGSEGV)
        if kind == "hanging":
            time.sleep(60)
        return {"wrong": (0.4, 90.0), "unwritten": (math.nan, math.nan)}.get(kind, (0.0017, 0.25))

    def row(self, contender, launches):
        self.asked.append((contender, launches))
        us = TORCH[contender] if contender in TORCH else self._plans[contender][2]
        return us * self._noise.uniform(0.99, 1.01), 1980.0

    def settle(self):
        return 1980.0


class FakeSession:
    """Cases of ``SCENARIOS``; good plans else."""

    def facts(self):
        return {"gpu": "fake", "uuid": os.environ["CUDA_VISIBLE_DEVICES"], "cudnn": 1, "frontend": "2", "torch": "3"}

    def measure(self, request, say):
        bench = FakeBench(SCENARIOS.get(request["problem"]["C"], GOOD))
        choose = (lambda names: names.index("eng0_k1=1")) if "models" in request else None
        given = (request["seed"], request["barred"], request["rivals"], say, choose)
        try:
            result = case.measure(bench, case.Limits(), *given)
        except case.Refused as refusal:
            result = {"failed": "unsupported", "told": str(refusal)}
        return result | {"late": [0, 1], "warm_mhz": 1980}


if __name__ == "__main__":
    say = start()
    if os.environ["CUDA_VISIBLE_DEVICES"] == "broken":
        raise SystemExit("no such GPU")
    worker.serve(say, FakeSession)
