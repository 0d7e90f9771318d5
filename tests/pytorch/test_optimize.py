"""What needs PyTorch but no GPU: replaced modules, and the choice of a plan for what a stand-in of cuDNN offers."""

import json
import warnings
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from tileseer.core.errors import UserError  # noqa: E402
from tileseer.learn import model_files  # noqa: E402
from tileseer.serve import tuned  # noqa: E402
from tileseer.torch import Plans, extension, modules, optimize  # noqa: E402
from tileseer.torch import plans as plans_module  # noqa: E402
from tileseer.torch.plans import problem_of  # noqa: E402

KERNELS = ["cudnn_conv_fwd_bf16_2d_eng1", "cudnn_conv_fwd_bf16_2d_eng2_k2=1", "cudnn_conv_fwd_bf16_2d_eng3"]


class Shape:
    """A convolution of 32 images as the operators describe it."""

    direction, ndim, groups = 0, 2, 1
    x, w = [32, 64, 56, 56, 0], [128, 64, 3, 3, 0]
    stride, padding, dilation = [2, 2, 0], [1, 1, 0], [1, 1, 0]

    def __init__(self, offers=("eng1", "eng2_k2=1", "eng3"), broken=()):
        self.offers, self.broken, self.built = list(offers), broken, []

    def offered(self):
        return self.offers

    def build(self, plan):
        if plan in self.broken:
            raise RuntimeError("CUDNN_STATUS_NOT_SUPPORTED")
        self.built.append(plan)
        return 1 << 40 if plan == "eng3" else 0


class Selector:
    kernels = candidates = KERNELS

    def __init__(self, pick=-1):
        self.pick = pick
        self.row = SimpleNamespace(tolist=lambda: [0, 1, 2])

    def tuned(self, problem):
        return None

    def choose(self, problem, offered, library):
        return self.pick

    def shortlist(self, problem, count, offered, library):
        return [{"kernel": name} for name in (KERNELS[1], KERNELS[2], KERNELS[0])]


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    (folder / "grouped_conv_forward_bf16_sm_90_cudnn").mkdir(parents=True)
    index = {
        "format": model_files.FORMAT, "arch": "sm_90_cudnn", "device": "sm_90_h200", "device_kind": "recorded",
        "sha256": {},
        "operations": {"forward_bf16": {"folder": "grouped_conv_forward_bf16_sm_90_cudnn"}},
    }  # fmt: skip
    (folder / "index.json").write_text(json.dumps(index))
    spec = folder / "grouped_conv_forward_bf16_sm_90_cudnn" / "feature_spec.json"
    spec.write_text(json.dumps({"library": "cudnn 91900"}))
    return folder


@pytest.fixture
def h200(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))


def operands(dtype=torch.bfloat16):
    return [torch.empty(1, dtype=dtype)] * 3


def plans_of(model, selector, version=91900):
    plans = Plans(model)
    plans.activate(SimpleNamespace(version=lambda: version, set_chooser=lambda function: None))
    plans._selector = lambda operation, device: selector
    return plans


@pytest.mark.parametrize(
    ("selector", "shape", "plan"),
    [
        (Selector(1), Shape(), "eng2_k2=1"),
        (Selector(-1), Shape(), "eng1"),  # the library's own choice
        (Selector(1), Shape(broken=["eng2_k2=1"]), "eng1"),
        (Selector(2), Shape(), "eng1"),  # the pick needs too much workspace
        (Selector(1), Shape(offers=["eng20", "eng1"]), ""),  # nothing is known of the first plan
        (Selector(1), Shape(offers=[]), ""),
    ],
)
def test_the_plan_of_a_shape(model, h200, selector, shape, plan):
    plans = plans_of(model, selector)
    with warnings.catch_warnings(record=True) as caught:
        assert plans.choose(shape, operands()) == plan
    assert plan in shape.built if plan else "has none of the plans that cuDNN offers" in str(caught[0].message)


def test_the_next_process_reads_the_choice_from_the_file(model, h200):
    plans = plans_of(model, Selector(1))
    plans.choose(Shape(), operands())
    plans.choose(Shape(offers=[]), operands())
    again = plans_of(model, None)
    assert plans.save() == model.with_name("model.plans.tsv") and not again.chosen
    again.save()  # a process that saw nothing does not undo what another one saved
    again = plans_of(model, None)
    assert again.chosen == plans.chosen and again.choose(Shape(), operands()) == "eng2_k2=1"
    (model / "index.json").write_text((model / "index.json").read_text() + "\n")
    with pytest.warns(UserWarning, match="is not used .it is of another model"):
        assert not Plans(model).chosen


@pytest.mark.parametrize(
    "damage",
    [lambda text: text[: len(text) // 2], lambda text: text[:3], lambda text: text.replace("\t32\t", "\tmany\t")],
)
def test_a_damaged_file_of_plans_is_not_used(model, h200, damage):
    plans = plans_of(model, Selector(1))
    plans.choose(Shape(), operands())
    path = plans.save()
    path.write_text(damage(path.read_text()))
    with pytest.warns(UserWarning, match="is not used"):
        again = plans_of(model, Selector(1))
    assert again.choose(Shape(), operands()) == "eng2_k2=1"
    again.save()
    assert Plans(model).chosen == plans.chosen


def test_a_damaged_file_of_tuned_choices_ends_no_training(model, h200, monkeypatch):
    monkeypatch.setattr(plans_module, "fastest_in_turns", lambda shape, names, operands: (names[-1], 0.25))
    path = tuned.tuned_path(model, "forward_bf16")
    path.parent.mkdir()
    path.write_text("no table\n")
    plans = plans_of(model, Selector(-1))
    plans.verify = 3
    with pytest.warns(UserWarning, match="cannot be remembered"):
        assert plans.choose(Shape(), operands()) == "eng2_k2=1"
    assert path.read_text() == "no table\n"


def test_verified_choices_are_remembered_beside_the_model(model, h200, monkeypatch):
    timed = []

    def fastest(shape, names, operands):
        timed.extend(names)
        return names[-1], 0.25

    monkeypatch.setattr(plans_module, "fastest_in_turns", fastest)
    plans = plans_of(model, Selector(-1))
    plans.verify = 3
    shape = Shape()
    assert plans.choose(shape, operands()) == "eng2_k2=1"
    # The library's own plan first; not the one whose workspace is too large.
    assert timed == ["eng1", "eng2_k2=1"]
    (choice,) = tuned.read_choices(tuned.tuned_path(model, "forward_bf16"))
    assert choice == (problem_of(shape, "bf16").dims, KERNELS[1], 0.25, 2, "NVIDIA H200", "measured")


@pytest.mark.parametrize(
    ("version", "capability", "dtype", "message"),
    [
        (92000, (9, 0), torch.bfloat16, "is for cudnn 91900, and this is cudnn 92000"),
        (91900, (8, 0), torch.bfloat16, "are for sm_90_cudnn, and this GPU is sm_80"),
        (91900, (9, 0), torch.float16, "no model of forward_fp16"),
    ],
)
def test_what_the_model_does_not_know_is_said_once(model, h200, monkeypatch, version, capability, dtype, message):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    plans = plans_of(model, Selector(1), version)
    with pytest.warns(UserWarning, match=message):
        assert plans.choose(Shape(), operands(dtype)) == ""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plans.choose(Shape(), operands(dtype)) == ""
    assert not plans.chosen


def test_models_of_other_kernels_are_refused(model):
    path = model / "index.json"
    path.write_text(path.read_text().replace("sm_90_cudnn", "sm_90"))
    with pytest.raises(UserError, match="its models are of sm_90, not of cuDNN's plans"):
        Plans(model)


def test_the_problem_of_a_shape():
    problem = problem_of(Shape(), "bf16")
    assert (problem.N, problem.C, problem.K, problem.Hi, problem.stride_w, problem.pad_h) == (32, 64, 128, 56, 2, 1)
    volume = Shape()
    volume.ndim, volume.x, volume.w = 3, [2, 8, 1, 9, 9], [8, 8, 1, 3, 3]
    volume.stride, volume.padding, volume.dilation = [1, 1, 1], [0, 1, 1], [1, 1, 1]
    with pytest.raises(UserError, match="without depth"):
        problem_of(volume, "bf16")


@pytest.fixture
def network():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.Conv2d(8, 8, (1, 5), padding="same", dilation=(1, 2)),
        torch.nn.Conv2d(8, 8, (2, 3), padding="same"),
        torch.nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect"),
        torch.nn.ConvTranspose2d(8, 4, 2),
        torch.nn.Conv2d(4, 4, 1, bias=False),
    )


@pytest.fixture
def operators(monkeypatch):
    """Stands for the compiled operators, without their CUDA."""
    called = []

    def convolution(x, w, bias, stride, padding, dilation, groups, plans):
        called.append(plans)
        return torch.nn.functional.conv2d(x, w, bias, stride, padding, dilation, groups)

    stand_in = SimpleNamespace(version=lambda: 91900, set_chooser=lambda function: None, convolution=convolution)
    monkeypatch.setattr(extension, "load", lambda: stand_in)
    monkeypatch.setattr(modules.torch.cuda, "is_available", lambda: True)
    return called


def test_convolutions_are_replaced_and_put_back(model, network, operators):
    x = torch.randn(2, 3, 8, 8)
    expected, state, kinds = network(x), network.state_dict().keys(), [type(module) for module in network]
    plans = Plans(model)
    with optimize(network, plans) as optimized:
        assert optimized.replaced == 3 and sum(optimized.left.values()) == 3
        assert torch.equal(network(x), expected) and operators == [plans.number] * 3
        assert network.state_dict().keys() == state and isinstance(network[0], torch.nn.Conv2d)
        assert optimize(network, plans).replaced == 0
        network[0](x[0])  # one image without a batch is PyTorch's own
    assert [type(module) for module in network] == kinds
    assert torch.equal(network(x), expected) and len(operators) == 3


def test_without_a_gpu_the_model_stays_as_it_is(model, network, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.warns(UserWarning, match="no CUDA device; the model is as it was"):
        assert optimize(network, model).replaced == 0
