"""The wheels of Tileseer and of a model, installed into an empty environment, on the CPU."""

import hashlib
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch_on_cpu  # noqa: E402

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, warnings
import tileseer, torch
import torch_on_cpu
from tileseer.torch.model_packages import model_of_gpu
from tileseer.torch import enabled, extension, switch
assert "site-packages" in tileseer.__file__
layer = torch.nn.Conv2d(8, 8, 3).bfloat16().to(memory_format=torch.channels_last)
x = torch.randn(1, 8, 9, 9).bfloat16().to(memory_format=torch.channels_last)
with warnings.catch_warnings(record=True) as caught, enabled():
    warnings.simplefilter("always")
    expected = layer(x)
torch_on_cpu.chooser.Selector = torch_on_cpu.Selector
torch_on_cpu.turn_on(model_of_gpu(9, 0), 0, None, extension.load(torch_on_cpu.PLANS))
for _ in range(3):
    layer(x).sum().backward()
print(model_of_gpu(9, 0), extension.load(torch_on_cpu.PLANS).counts(), switch.save(), sep="\\n")
"""


@pytest.fixture
def models(tmp_path):
    """Return a folder of published models, as far as packing and the choice of plans read it."""
    folder = torch_on_cpu.write_index(tmp_path / "sm_90_cudnn")
    (folder / "grouped_conv_forward_bf16_sm_90_cudnn").mkdir()
    content = b"a model\n"
    (folder / "grouped_conv_forward_bf16_sm_90_cudnn" / "model.txt").write_bytes(content)
    index = (folder / "index.json").read_text()
    listed = f'{{"grouped_conv_forward_bf16_sm_90_cudnn/model.txt": "{hashlib.sha256(content).hexdigest()}"}}'
    (folder / "index.json").write_text(index.replace('"sha256": {}', f'"sha256": {listed}'))
    return folder


def build(models, output, **options):
    command = [sys.executable, ROOT / "tools" / "wheels.py", models, "--output", output]
    return subprocess.run(command, capture_output=True, text=True, cwd=output, **options)


def test_installed_wheels_find_the_model_and_run_plans(models, tmp_path, compiled, offer):
    offer("eng1")
    (tmp_path / "dist").mkdir()
    run = build(models, tmp_path / "dist")
    assert run.returncode == 0, run.stderr
    wheels = [Path(line) for line in run.stdout.splitlines()]
    assert [path.name.partition("-")[0] for path in wheels] == [
        *("tileseer", "amdgpu_emulator", "tileseer_emulated", "tileseer_models_sm90_cudnn")
    ]
    assert "tileseer/torch/native/cudnn/plans.hpp" in zipfile.ZipFile(wheels[0]).namelist()
    environment = tmp_path / "environment"
    venv.create(environment)
    python = environment / "bin" / "python"
    install = ["-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps", *wheels]
    subprocess.run([sys.executable, *install], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    # The other packages are those of the tests; the package itself is the installed one, which comes first.
    borrowed = [path for path in sys.path if path.endswith("site-packages")]
    (site / "borrowed.pth").write_text("\n".join([*borrowed, str(Path(torch_on_cpu.__file__).parent)]))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    run = subprocess.run([python, "-c", PROGRAM], env=kept, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    model, shapes, _ = run.stdout.splitlines()
    assert Path(model) == site / "tileseer_models_sm90_cudnn" / "model" and shapes == "(2, 2)"


def test_a_damaged_model_is_not_packed(models, tmp_path):
    (models / "grouped_conv_forward_bf16_sm_90_cudnn" / "model.txt").write_text("another\n")
    run = build(models, tmp_path)
    assert run.returncode == 2 and "error: " in run.stderr and "model.txt" in run.stderr
