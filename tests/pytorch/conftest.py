"""The switch on the CPU: PyTorch's own dispatcher, kernels as compiled for a GPU, and a library of plans for tests.

Without PyTorch the tests are skipped, except under TILESEER_NEEDS_TORCH (as .ci/run sets it).
"""

import contextlib
import os

import pytest

if "TILESEER_NEEDS_TORCH" in os.environ:
    import onnxscript  # noqa: F401
    import torch  # noqa: F401


@pytest.fixture(scope="session")
def compiled():
    from torch_on_cpu import PLANS

    from tileseer.torch import extension

    return extension.load(PLANS)


@pytest.fixture
def model(tmp_path, monkeypatch):
    import torch_on_cpu

    monkeypatch.setattr(torch_on_cpu.chooser, "Selector", torch_on_cpu.Selector)
    return torch_on_cpu.write_index(tmp_path / "model")


@pytest.fixture
def offer(monkeypatch):
    """Say which plans the library offers; their engines are explained in plans_on_cpu/plans.hpp."""

    def offers(*names):
        monkeypatch.setenv("TILESEER_TEST_PLANS", " ".join(names))

    offers("eng0", "eng1", "eng2")
    return offers


@pytest.fixture
def enabled(model, compiled, offer):
    """Return a context manager that enables the switch on the CPU; verify=0 runs the model's plan, engine 1."""
    from torch_on_cpu import CpuChooser, turn_on

    from tileseer.torch import switch

    @contextlib.contextmanager
    def enable(verify=0, path=None, kind=CpuChooser):
        try:
            yield turn_on(model, verify, path or model.parent / "choices", compiled, kind)
        finally:
            switch.disable()

    return enable


@pytest.fixture
def image():
    import torch

    def make(*shape, dtype=torch.bfloat16):
        last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
        generator = torch.Generator().manual_seed(sum(shape))
        return torch.randn(shape, generator=generator).to(dtype).to(memory_format=last)

    return make


@pytest.fixture
def layer():
    import torch

    def make(kind, *arguments, dtype=torch.bfloat16, **options):
        torch.manual_seed(0)
        last = torch.channels_last_3d if "3d" in kind else torch.channels_last
        return getattr(torch.nn, kind)(*arguments, **options).to(dtype).to(memory_format=last)

    return make
