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
    speeds = {predictions.FIRST: 1.05, predictions.DEFAULT: 1.10, predictions.BENCHMARK: 1.00}
    gpu.libraries = [SimpleNamespace(library=library, speed=speed) for library, speed in speeds.items()]
    cudnn = SimpleNamespace(version="cudnn 91900", offered=lambda problem: ["eng1", "eng2"])
    monkeypatch.setattr(predictions, "Cudnn", lambda: cudnn)
    monkeypatch.setattr(predictions.model_files, "read_index", lambda models: index)
    monkeypatch.setattr(predictions.documents, "read_document", lambda path, kind: gpu)
    monkeypatch.setattr(predictions.Selector, "read", lambda models, operation: Selector(operation))


def test_the_predicted_gain_of_each_layer_and_of_the_step(stand_ins, tmp_path):
    network = tmp_path / "network.py"
    network.write_text(NETWORK)
    report = predictions.report(network, tmp_path, "bf16", trained=True)
    # The image needs no gradient; the transposed layer's result is a gradient with respect to data, and the reverse.
    assert sorted((row.layer, row.problem.variant, round(row.gain, 6), row.pick) for row in report.layers) == [
        ("0", "bwd_weight", 2.0, "eng2"),
        ("0", "forward", 1.0, "eng1"),
        ("2", "bwd_data", 1.0, "eng1"),
        ("2", "bwd_weight", 2.0, "eng2"),
        ("2", "forward", 1.0, "eng1"),
    ]
    assert not report.left_out and report.known == 1.0 and report.other_milliseconds > 0
    total = report.other_milliseconds + sum(row.milliseconds for row in report.layers)
    for mode, factor in ((predictions.DEFAULT, 1.10 / 1.05), (predictions.BENCHMARK, 1.00 / 1.05)):
        saved = sum(row.milliseconds * (row.gain * factor - 1) for row in report.layers)
        assert report.gain(mode) == pytest.approx((total + saved) / total)


PROGRAM = """
import torch
from torch import nn

class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Conv2d(8, 16, 3, padding=1, groups=2).requires_grad_(False)
        self.weight = nn.Parameter(torch.ones(16, 16, 1, 1))
        self.up = nn.ConvTranspose2d(16, 8, 3, stride=2, output_padding=1)
        self.same = nn.Conv2d(8, 8, (1, 5), padding="same", dilation=(3, 2), padding_mode="circular")
        self.line, self.deep = nn.Conv1d(8, 8, 3), nn.Conv2d(8, 8, 3, stride=2)

    def forward(self, x):
        x = nn.functional.conv2d(self.frozen(x), self.weight - self.weight.mean())
        x = self.same(self.up(x))
        return self.deep(x).sum() + self.line(x[:, :, 0]).sum()

model, inputs = Network(), torch.ones(2, 8, 9, 9)
"""


def test_it_predicts_the_calls_that_the_switch_sees(tmp_path, enabled, offer):
    (tmp_path / "network.py").write_text(PROGRAM)
    calls = predictions.record(tmp_path / "network.py", "bf16", trained=True)
    values = {}
    exec(PROGRAM, values)
    last = torch.channels_last
    network, x = values["model"].bfloat16().to(memory_format=last), values["inputs"].bfloat16().to(memory_format=last)
    offer("eng0", "eng1")
    with enabled(verify=0) as chooser:
        for _ in range(3):
            network(x).backward()
    seen = {(key.operation, key.dims) for key in chooser.choices.plans}
    assert {(f"{one.variant}_{one.dtype}", one.dims) for one in calls.problems} == seen and len(seen) == 12
    assert calls.left_out == {"1D": 3}


def test_a_model_that_looks_at_values_is_made_on_the_cpu(stand_ins, tmp_path):
    network = tmp_path / "network.py"
    network.write_text(NETWORK + "assert float(torch.ones(()).item()) == 1.0\n")
    assert len(predictions.report(network, tmp_path, "bf16", trained=False).layers) == 2


def test_the_last_line_is_the_verdict(stand_ins, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "network.py").write_text(NETWORK)
    command = words("tileseer torch-report")
    assert main(command) == 0
    verdict = capsys.readouterr().out.splitlines()[-1]
    assert verdict.startswith("worth it (from 1.01): a training step in bf16, channels last, is predicted 1.")
    assert main([*command, "--inference", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["predicted_gain"]["over_benchmark_mode"] < 1.0 < content["predicted_gain"]["over_default"]
    assert content["worth_it"] and len(content["layers"]) == 2 and content["dtype"] == "bf16"


def test_plans_of_another_cudnn_are_ordered_where_their_names_are_known(stand_ins, tmp_path, monkeypatch):
    network = tmp_path / "network.py"
    network.write_text(NETWORK.replace("inputs = torch.empty(8, 64, 28, 28)", "inputs = [torch.empty(8, 64, 28, 28)]"))
    cudnn = SimpleNamespace(version="cudnn 92400", offered=lambda problem: ["eng1", "eng9", "eng8", "eng2"])
    monkeypatch.setattr(predictions, "Cudnn", lambda: cudnn)
    report = predictions.report(network, tmp_path, "bf16", trained=True)
    assert report.known == 0.5 and report.version == "cudnn 92400"
    assert [row.pick for row in report.layers if row.problem.variant == "bwd_weight"] == ["eng2", "eng2"]


def test_without_cudnn_the_package_of_the_models_version_is_named(stand_ins, tmp_path, monkeypatch):
    def missing():
        raise UserError("cuDNN's library is missing")

    (tmp_path / "network.py").write_text(NETWORK)
    monkeypatch.setattr(predictions, "Cudnn", missing)
    with pytest.raises(UserError, match=r"is missing.*pip install nvidia-cudnn-cu13==9\.19\.0\.\*"):
        predictions.report(tmp_path / "network.py", tmp_path, "bf16", trained=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model = 1", "define model, a module, and inputs"),
        ("raise ValueError('no weights')", "ValueError: no weights"),
        ("raise SystemExit('no weights')", "SystemExit: no weights"),
        (NETWORK.replace("(8, 64,", "(8, 32,"), "does not run on the meta device"),
    ],
)
def test_a_file_that_is_no_network_is_one_line(stand_ins, tmp_path, text, message):
    network = tmp_path / "network.py"
    network.write_text(text)
    with pytest.raises(UserError, match=message):
        predictions.report(network, tmp_path, "bf16", trained=True)
    assert torch_report.EXAMPLES
