"""``tileseer torch-report`` with stand-ins of cuDNN's library and of the model."""

import json
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from help_examples import words  # noqa: E402

from tileseer.cli import torch_report  # noqa: E402
from tileseer.cli.main import main  # noqa: E402
from tileseer.core.errors import UserError  # noqa: E402
from tileseer.torch import report as predictions  # noqa: E402

NETWORK = """
import torch
model = torch.nn.Sequential(torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.ConvTranspose2d(64, 8, 2))
inputs = torch.empty(8, 64, 28, 28)
"""


class Selector:
    """Picks the second plan, which is twice as fast, for the backward weight pass alone."""

    library = "cudnn 91900"

    def __init__(self, operation):
        self.gain = 2.0 if operation.startswith("bwd_weight") else 1.0
        self.kernels = [f"cudnn_conv_x_bf16_2d_{name}" for name in ("eng1", "eng2")]
        self.row = SimpleNamespace(tolist=lambda: [0, 1])

    def choose(self, problem, offered, library):
        return 1 if self.gain > 1 else -1

    def shortlist(self, problem, count, offered, library):
        scores = (0.0, float(torch.tensor(self.gain).log()))
        return [{"kernel": kernel, "score": score} for kernel, score in zip(self.kernels, scores, strict=True)]


@pytest.fixture
def stand_ins(monkeypatch):
    gpu = SimpleNamespace(hbm_tb_per_s=4.8, peak_tflops_16bit=1000.0)
    operations = {f"{name}_bf16": SimpleNamespace(folder=name) for name in ("forward", "bwd_data", "bwd_weight")}
    index = SimpleNamespace(operations=operations, arch="sm_90_cudnn")
    cudnn = SimpleNamespace(version="cudnn 91900", offered=lambda problem: ["eng1", "eng2"])
    monkeypatch.setattr(predictions, "Cudnn", lambda: cudnn)
    monkeypatch.setattr(predictions.model_files, "read_index", lambda models: index)
    monkeypatch.setattr(predictions.documents, "read_document", lambda path, kind: gpu)
    monkeypatch.setattr(predictions.Selector, "read", lambda models, operation: Selector(operation))


def test_the_predicted_gain_of_each_layer_and_of_the_step(stand_ins, tmp_path):
    network = tmp_path / "network.py"
    network.write_text(NETWORK)
    report = predictions.report(network, tmp_path, "bf16", trained=True)
    assert [(row.problem.variant, round(row.gain, 3), row.pick) for row in report.layers] == [
        ("forward", 1.0, "eng1"),
        ("bwd_weight", 2.0, "eng2"),
    ]
    weight = report.layers[1].milliseconds
    total = report.other_milliseconds + sum(row.milliseconds for row in report.layers)
    assert report.gain == pytest.approx((total + weight) / total) and report.other_milliseconds > 0
    assert report.left_out == {"a transposed convolution": 1}


def test_a_model_that_looks_at_values_is_made_on_the_cpu(stand_ins, tmp_path):
    network = tmp_path / "network.py"
    network.write_text(NETWORK + "assert float(torch.ones(()).item()) == 1.0\n")
    assert len(predictions.report(network, tmp_path, "bf16", trained=False).layers) == 1


def test_the_last_line_is_the_verdict(stand_ins, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "network.py").write_text(NETWORK)
    command = words("tileseer torch-report")
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("worth it: 1.")
    assert main([*command, "--inference", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["predicted_gain"] == 1.0 and not content["worth_it"] and len(content["layers"]) == 1


def test_plans_of_another_cudnn_are_no_prediction(stand_ins, tmp_path, monkeypatch):
    network = tmp_path / "network.py"
    network.write_text(NETWORK.replace("inputs = torch.empty(8, 64, 28, 28)", "inputs = [torch.empty(8, 64, 28, 28)]"))
    assert predictions.report(network, tmp_path, "bf16", trained=True).layers
    monkeypatch.setattr(Selector, "library", "cudnn 92000")
    with pytest.raises(UserError, match="is for cudnn 92000, and this is cudnn 91900"):
        predictions.report(network, tmp_path, "bf16", trained=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model = 1", "define model, a module, and inputs"),
        ("raise ValueError('no weights')", "ValueError: no weights"),
        (NETWORK.replace("(8, 64,", "(8, 32,"), "does not run on the meta device"),
    ],
)
def test_a_file_that_is_no_network_is_one_line(stand_ins, tmp_path, text, message):
    network = tmp_path / "network.py"
    network.write_text(text)
    with pytest.raises(UserError, match=message):
        predictions.report(network, tmp_path, "bf16", trained=True)
    assert torch_report.EXAMPLES
