"""The switch on the CPU: PyTorch's own dispatcher, kernels as compiled for a GPU, and a library of plans for tests."""

import contextlib
import json
import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tileseer.learn import model_files  # noqa: E402
from tileseer.torch import chooser as chooser_module  # noqa: E402
from tileseer.torch import extension, switch  # noqa: E402

PLANS = Path(__file__).parent / "plans_on_cpu"
OPERATIONS = ("forward_bf16", "bwd_data_bf16", "bwd_weight_bf16")


class Selector:
    """A model that knows three plans and prefers the second."""

    library = "cudnn 91900"
    order = ("eng1", "eng2", "eng0")

    def __init__(self, operation):
        self.kernels = [f"cudnn_conv_{operation}_{ndim}d_{name}" for ndim in (2, 3) for name in self.order]

    @classmethod
    def read(cls, models, operation):
        return cls(operation)

    def shortlist(self, problem, count, offered, library):
        kernels = [name for name in self.kernels if f"_{problem.ndim}d_" in name and name.rpartition("_")[2] in offered]
        return [{"kernel": kernel, "rank": rank} for rank, kernel in enumerate(kernels, 1)]

    def choose(self, problem, offered, library):
        return self.kernels.index(next(name for name in self.kernels if f"_{problem.ndim}d_eng1" in name))


class CpuChooser(chooser_module.Chooser):
    device_type = "cpu"
    capability = (9, 0)

    def _capability(self, device):
        return self.capability

    def _devices(self):
        return {-1: "NVIDIA H200"}


@pytest.fixture(scope="session")
def compiled():
    return extension.load(PLANS)


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.setattr(chooser_module, "Selector", Selector)
    folder = tmp_path / "model"
    folder.mkdir()
    operations = {name: {"folder": f"grouped_conv_{name}_sm_90_cudnn"} for name in OPERATIONS}
    index = {
        "format": model_files.FORMAT, "tileseer": model_files.READERS, "arch": "sm_90_cudnn", "device": "sm_90_h200",
        "device_kind": "recorded", "sha256": {}, "operations": operations,
    }  # fmt: skip
    (folder / "index.json").write_text(json.dumps(index))
    return folder


@pytest.fixture
def offer(monkeypatch):
    """Say which plans the library offers; their engines are explained in plans_on_cpu/plans.hpp."""

    def offers(*names):
        monkeypatch.setitem(os.environ, "TILESEER_TEST_PLANS", " ".join(names))

    offers("eng0", "eng1", "eng2")
    return offers


@pytest.fixture
def enabled(model, compiled, offer, monkeypatch):
    """Return a context manager that enables the switch on the CPU; verify=0 runs the model's plan, engine 1."""

    @contextlib.contextmanager
    def enable(verify=0, path=None, kind=CpuChooser):
        made = kind(model, verify, path or model.parent / "choices.tsv", compiled)
        switch._turn_on(made)
        try:
            yield made
        finally:
            switch.disable()

    return enable


@pytest.fixture
def image():
    def make(*shape, dtype=torch.bfloat16):
        last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
        generator = torch.Generator().manual_seed(sum(shape))
        return torch.randn(shape, generator=generator).to(dtype).to(memory_format=last)

    return make


@pytest.fixture
def layer():
    def make(kind, *arguments, dtype=torch.bfloat16, **options):
        torch.manual_seed(0)
        last = torch.channels_last_3d if "3d" in kind else torch.channels_last
        return getattr(torch.nn, kind)(*arguments, **options).to(dtype).to(memory_format=last)

    return make
