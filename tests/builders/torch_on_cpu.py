"""The switch of ``tileseer.torch`` on the CPU: a chooser for a library of plans that tests bring, and a model of it."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from tileseer.learn import model_files
from tileseer.learn.evidence import TIMED
from tileseer.torch import chooser, switch

PLANS = Path(__file__).parents[1] / "pytorch" / "plans_on_cpu"
OPERATIONS = ("forward_bf16", "bwd_data_bf16", "bwd_weight_bf16")


class Selector:
    """A model that knows three plans and prefers the first."""

    library = "cudnn 91900"
    order = ("eng1", "eng2", "eng0")

    def __init__(self, operation):
        self.kernels = [f"cudnn_conv_{operation}_{ndim}d_{name}" for ndim in (2, 3) for name in self.order]

    @classmethod
    def read(cls, models, operation):
        return cls(operation)

    def shortlist(self, problem, count, offered, library):
        kernels = [name for name in self.kernels if f"_{problem.ndim}d_" in name and name.rpartition("_")[2] in offered]
        others = [name for name in kernels if not name.endswith(f"_{offered[0]}")][:count]
        return [{"kernel": name} for name in kernels if name in others or name.endswith(f"_{offered[0]}")]

    def expected(self, problems):
        """Known of every problem: two plans are worth timing."""
        timed = np.array([[1.2, 1.004, *[1.0] * (len(TIMED) - 2)]] * len(problems))
        return SimpleNamespace(timed=timed)

    def choose(self, problem, offered, library):
        return next(row for row, name in enumerate(self.kernels) if name.endswith(f"_{problem.ndim}d_eng1"))


class CpuChooser(chooser.Chooser):
    """Takes the CPU for an H200; the time of a plan is a number that the test gives."""

    capability = (9, 0)

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.milliseconds = {"eng1": 0.5, "eng2": 20.0}
        """Of a plan and of PyTorch's own choice (""); 1 without one."""
        self.timed = []
        """The ways of each comparison."""

    def _clock(self, call):
        turns = []

        def clock(names):
            for name in names:
                call.run(name)
            turns.append(names)
            self.timed += [names] if len(turns) == 1 else []
            return [self.milliseconds.get(name, 1.0) for name in names]

        return clock

    def _capability(self, device):
        return self.capability

    def _memory_bytes(self, device):
        return 1 << 34

    def _devices(self):
        return {-1: "NVIDIA H200"}


def turn_on(model, verify, path, compiled, kind=CpuChooser):
    """Enable the switch on the CPU, and return the chooser of the model."""
    program = type("CpuProgram", (switch.Program,), {"kind": kind})(model, verify, path, compiled)
    switch._put(switch._scopes[-1], program)
    return program.choosers[model]


def write_index(folder):
    """Write the index of a model directory without models, which is all that is read of it beside them."""
    operations = {name: {"folder": f"grouped_conv_{name}_sm_90_cudnn"} for name in OPERATIONS}
    index = {
        "format": model_files.FORMAT, "tileseer": model_files.READERS, "arch": "sm_90_cudnn", "device": "sm_90_h200",
        "device_kind": "recorded", "sha256": {}, "operations": operations,
    }  # fmt: skip
    folder.mkdir()
    (folder / "index.json").write_text(json.dumps(index))
    return folder
