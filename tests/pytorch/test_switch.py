"""What runs behind the switch: results, gradients, the third call, bounds, and what PyTorch keeps."""

import signal
import threading
import time
import warnings
from pathlib import Path

import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch_on_cpu import CpuChooser  # noqa: E402

from tileseer.core.errors import UserError  # noqa: E402
from tileseer.torch import choices, switch  # noqa: E402
from tileseer.torch import chooser as chooser_module  # noqa: E402

CASES = [
    ("Conv2d", (16, 32, 3), (4, 16, 12, 12), {"padding": 1}),
    ("Conv2d", (16, 32, 3), (4, 16, 13, 13), {"padding": 1, "stride": 2, "bias": False}),
    ("Conv2d", (32, 32, 3), (2, 32, 14, 14), {"padding": 2, "dilation": 2, "groups": 4}),
    ("Conv2d", (16, 32, (1, 5)), (2, 16, 9, 9), {"padding": "same", "dilation": (1, 2)}),
    ("Conv2d", (16, 8, 1), (2, 16, 7, 7), {"dilation": 3}),
    ("Conv3d", (8, 16, (1, 3, 3)), (2, 8, 6, 10, 10), {"padding": (0, 1, 1), "stride": (1, 2, 2)}),
    ("ConvTranspose2d", (16, 8, 3), (2, 16, 9, 9), {"stride": 2, "padding": 1, "output_padding": 1}),
    ("ConvTranspose2d", (16, 8, 2), (2, 16, 9, 9), {"stride": 2, "groups": 2, "bias": False}),
    ("ConvTranspose3d", (8, 4, 2), (2, 8, 4, 5, 5), {"stride": 2}),
]


def results(module, x, grad=None):
    x = x.detach().requires_grad_()
    y = module(x)
    grad = torch.ones_like(y) if grad is None else grad
    return [y, *torch.autograd.grad(y, (x, *module.parameters()), grad)]


def same(one, other):
    one, other = one.detach().double(), other.detach().double()
    return float((one - other).norm()) <= 0.02 * float(other.norm())


@pytest.mark.parametrize(("kind", "arguments", "shape", "options"), CASES)
def test_results_and_gradients_are_those_of_pytorch_in_its_layout(
    enabled, compiled, image, layer, kind, arguments, shape, options
):
    module, x = layer(kind, *arguments, **options), image(*shape)
    expected = results(module, x)
    with enabled(verify=0):
        for _ in range(4):
            got = results(module, x)
        # Where PyTorch's own results are not channels last (3D on the CPU), nothing is.
        planned = sum(y.stride()[1] == 1 for y in expected[:3]) if "3d" in kind else 3
        assert compiled.counts() == (3, planned)
    for one, other in zip(got, expected, strict=True):
        assert same(one, other) and one.stride() == other.stride() and one.dtype == other.dtype
    module(image(*shape))
    assert compiled.counts()[0] == 3  # nothing passes any more


def test_a_convolution_of_a_function_and_of_a_subclass(enabled, compiled, image, layer):
    class Standardised(nn.Conv2d):
        def forward(self, x):
            w = self.weight - self.weight.mean()
            return nn.functional.conv2d(x, w, self.bias, self.stride, self.padding)

    x, module = image(2, 16, 9, 9), Standardised(16, 8, 3).bfloat16()
    expected = module(x)
    with enabled(), torch.no_grad():
        for _ in range(150):  # its weight is another tensor in each call
            got = module(x)
        assert compiled.counts() == (1, 1) and same(got, expected)


def test_a_shape_is_chosen_for_at_its_third_call(enabled, compiled, image, layer):
    module, x = layer("Conv2d", 16, 8, 3), image(2, 16, 9, 9)
    with enabled() as chooser, torch.no_grad():
        for planned in (0, 0, 1, 1):
            module(x)
            assert compiled.counts() == (1, planned)
        assert len(chooser.choices.plans) == 1


def test_many_layers_of_one_shape_are_one_call_of_a_step(enabled, compiled, image, layer):
    network, x = nn.Sequential(*(layer("Conv2d", 8, 8, 3, padding=1) for _ in range(9))), image(2, 8, 9, 9)
    with enabled():
        for planned in (0, 0, 3):
            network(x).sum().backward()
            assert compiled.counts() == (3, planned)


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        (("eng1", "eng0", "eng2"), ["", "eng1", "eng2"]),  # the model prefers engine 1, then 2
        (("eng7", "eng0", "eng1", "eng2"), ["", "eng7", "eng1"]),  # and does not know engine 7
    ],
)
def test_the_first_plan_is_timed_beside_the_best_others(
    enabled, compiled, image, layer, offer, monkeypatch, offered, expected
):
    offer(*offered)
    timed = []
    monkeypatch.setattr(chooser_module, "fastest_in_turns", lambda call, names, device: timed.append(names) or "")
    module, x = layer("Conv2d", 8, 8, 3), image(1, 8, 5, 5)
    with enabled(verify=1), torch.no_grad():
        for _ in range(3):
            module(x)
    assert timed == [expected]


def test_a_new_size_at_each_step_chooses_nothing(enabled, compiled, image, layer, monkeypatch):
    monkeypatch.setattr(chooser_module, "SHAPES_KEPT", 50)
    network = nn.Sequential(*(layer("Conv2d", 8, 8, 3, padding=1) for _ in range(9)))
    with enabled() as chooser:
        for size in range(3, 43):
            network(image(1, 8, size, size)).sum().backward()
        assert compiled.counts() == (50, 0) and not chooser.choices.plans


def test_plans_are_kept_up_to_a_bound_and_come_back_when_known(enabled, compiled, image, layer, monkeypatch):
    monkeypatch.setattr(chooser_module, "SHAPES_KEPT", 2)
    module = layer("Conv2d", 8, 8, 3)
    with enabled() as chooser, torch.no_grad():
        for size in (5, 6, 7):
            for _ in range(3):
                module(image(1, 8, size, size))
        assert compiled.counts() == (2, 2) and len(chooser.choices.plans) == 3
        monkeypatch.setattr(chooser, "_picked", lambda call, problem: pytest.fail("it was chosen before"))
        for _ in range(3):
            module(image(1, 8, 5, 5))
        assert compiled.counts() == (2, 2)


def test_the_next_process_makes_the_same_choices_at_once(enabled, compiled, image, layer, tmp_path):
    module, x = layer("Conv2d", 8, 8, 3), image(1, 8, 5, 5)
    with enabled(), torch.no_grad():
        for _ in range(3):
            module(x)
        assert not (tmp_path / "choices.tsv").exists()
    before = (tmp_path / "choices.tsv").read_text()
    with enabled() as chooser, torch.no_grad():
        module(x)
        assert compiled.counts() == (1, 1) and not chooser.choices._changed
        assert switch.save() == tmp_path / "choices.tsv"
    assert (tmp_path / "choices.tsv").read_text() == before


def test_processes_add_to_one_file(tmp_path):
    keys = [choices.Key("forward_bf16", "GPU", False, (number,) * 19) for number in (1, 2)]
    both = [choices.Choices(tmp_path / "file.tsv", "of a test") for _ in keys]
    for one, key in zip(both, keys, strict=True):
        one.add(key, "eng1")
    for one in both:
        one.save()
    assert choices.Choices(tmp_path / "file.tsv", "of a test").plans == dict.fromkeys(keys, "eng1")


def test_each_recorded_plan_can_be_remembered(tmp_path):
    recorded = sorted(Path("config/recorded/sm_90_cudnn").glob("*/kernels.parquet"))
    kernels = pd.concat(pd.read_parquet(path) for path in recorded)["kernel"]
    names = kernels.str.extract(r"_[23]d_(eng.*)$")[0].unique().tolist()
    assert len(names) > 1000 and any("=-1" in name for name in names)
    path = tmp_path / "file.tsv"
    one = choices.Choices(path, "of a test")
    for number, name in enumerate(names, 1):
        one.add(choices.Key("forward_bf16", "GPU", False, (number, *[1] * 18)), name)
    one.save()
    assert choices.Choices(path, "of a test").plans == one.plans


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: text.replace("\tdefault\t", "\tmany\t"),
        lambda text: text.replace("# model", "# another"),
        lambda text: text.replace("operation", "place"),
        lambda text: text.replace("\nforward_bf16\t", "\nsideways_bf16\t"),
        lambda text: text.replace("\teng1\n", "\teng1_k2\n"),
        lambda text: text.replace("\t5\t", f"\t{1 << 70}\t"),
        lambda text: text + "forward_bf16\n",
    ],
)
def test_a_damaged_file_of_choices_is_replaced(enabled, compiled, image, layer, tmp_path, damage):
    module, x, path = layer("Conv2d", 8, 8, 3), image(1, 8, 5, 5), tmp_path / "choices.tsv"
    for _ in range(2):
        with enabled(), torch.no_grad():
            for _ in range(3):
                module(x)
        whole = path.read_text()
        path.write_text(damage(whole))
    with pytest.warns(UserWarning, match=r"choices\.tsv.*plans are chosen anew"), enabled(), torch.no_grad():
        for _ in range(3):
            module(x)
    assert path.read_text() == whole


def test_the_fastest_of_those_that_are_timed_stays(enabled, compiled, image, layer, monkeypatch):
    module, x = layer("Conv2d", 64, 64, 3), image(4, 64, 40, 40)
    with enabled(verify=2) as chooser, torch.no_grad():
        for _ in range(3):
            module(x)
        assert list(chooser.choices.plans.values()) == ["eng1"]  # it copies a result that is kept
    timed = []
    monkeypatch.setattr(chooser_module, "fastest_in_turns", lambda call, names, device: timed.append(names) or "")
    with enabled(verify=1, path=chooser.model / "other.tsv") as chooser, torch.no_grad():
        for _ in range(3):
            module(x)
        assert timed == [["", "eng0", "eng1"]]  # PyTorch's own, the first plan, and the model's best
        assert list(chooser.choices.plans.values()) == [""] and compiled.counts() == (1, 0)


def test_a_tie_stays_with_pytorch(enabled, compiled, image, layer, offer):
    offer("eng2", "eng0")
    module, x = layer("Conv2d", 16, 16, 3), image(1, 16, 9, 9)
    with enabled(verify=1) as chooser, torch.no_grad():
        for _ in range(3):
            module(x)
        assert list(chooser.choices.plans.values()) == [""]


@pytest.mark.parametrize("broken", ["eng20", "eng30", "eng32"])
def test_plans_that_are_wrong_or_cannot_run_are_left_out(enabled, image, layer, offer, broken):
    offer(broken, "eng1")
    module, x = layer("Conv2d", 64, 64, 3), image(4, 64, 40, 40)
    expected = module(x)
    with enabled(verify=2) as chooser, torch.no_grad():
        for _ in range(4):
            got = module(x)
        assert list(chooser.choices.plans.values()) == ["eng1"] and same(got, expected)


def said(caught):
    return [str(one.message) for one in caught if "tileseer" in str(one.message)]


def test_without_memory_to_time_pytorch_keeps_the_shape(enabled, compiled, image, layer, offer):
    offer("eng31")
    module, x = layer("Conv2d", 8, 8, 3), image(1, 8, 5, 5)
    with enabled(verify=2) as chooser, torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(5):
            module(x)
        assert compiled.counts() == (1, 0) and not chooser.choices.plans
    assert [text for text in said(caught) if "not enough memory" in text] == said(caught) and len(said(caught)) == 1


def test_an_error_of_the_chooser_ends_no_program(enabled, compiled, image, layer, monkeypatch):
    monkeypatch.setattr(chooser_module, "fastest_in_turns", lambda *_: 1 / 0)
    module, x = layer("Conv2d", 8, 8, 3), image(1, 8, 5, 5)
    with enabled(verify=2), torch.no_grad(), pytest.warns(UserWarning, match="ZeroDivisionError.*PyTorch's own choice"):
        for _ in range(3):
            module(x)


def test_an_error_while_models_are_read_ends_no_program(enabled, compiled, image, layer):
    class WithoutThreads(CpuChooser):
        def read_ahead(self):
            raise RuntimeError("can't start new thread")

    module, x = layer("Conv2d", 8, 8, 3), image(1, 8, 5, 5)
    with enabled(kind=WithoutThreads), torch.no_grad(), pytest.warns(UserWarning, match="can't start new thread"):
        for planned in (0, 0, 1):
            module(x)
            assert compiled.counts() == (1, planned)


def test_ctrl_c_while_choosing_reaches_the_program(enabled, image, layer, monkeypatch):
    def interrupted(call, names, device):
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.2)
        return ""

    monkeypatch.setattr(chooser_module, "fastest_in_turns", interrupted)
    module, x = layer("Conv2d", 8, 8, 3), image(1, 8, 5, 5)
    # Shells let what they run in the background ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with enabled(verify=2), torch.no_grad(), pytest.raises(KeyboardInterrupt):
            for _ in range(3):
                module(x)
            time.sleep(1)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_plan_that_fails_later_is_left(enabled, compiled, image, layer, offer, monkeypatch):
    offer("eng33")
    module, x = layer("Conv2d", 8, 8, 3), image(1, 8, 5, 5)
    expected = module(x)
    monkeypatch.setattr(chooser_module, "fastest_in_turns", lambda call, names, device: names[-1])
    with enabled(verify=2), torch.no_grad():
        for _ in range(3):
            module(x)
        assert compiled.counts() == (1, 1)
        monkeypatch.setenv("TILESEER_TEST_FAILING", "1")
        with pytest.warns(UserWarning, match="a plan failed"):
            assert same(module(x), expected)
        assert compiled.counts() == (1, 0)


def test_nothing_is_chosen_while_a_graph_is_captured(enabled, compiled, image, layer, monkeypatch):
    module, x = layer("Conv2d", 8, 8, 3), image(1, 8, 5, 5)
    with enabled(), torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        monkeypatch.setenv("TILESEER_TEST_CAPTURING", "1")
        for _ in range(5):
            module(x)
        assert compiled.counts() == (1, 0)
        monkeypatch.delenv("TILESEER_TEST_CAPTURING")
        for _ in range(3):
            module(x)
        monkeypatch.setenv("TILESEER_TEST_CAPTURING", "1")
        module(x)
        assert compiled.counts() == (1, 1)
    assert len([text for text in said(caught) if "CUDA graph is captured" in text]) <= 1


def test_switches_of_pytorch_are_respected(enabled, compiled, image, layer):
    module, x = layer("Conv2d", 8, 8, 3), image(1, 8, 5, 5)
    with enabled(), torch.no_grad():
        with torch.backends.cudnn.flags(enabled=True, deterministic=True):
            module(x)
        with torch.backends.cudnn.flags(enabled=False):
            module(x)
        torch.use_deterministic_algorithms(True)
        module(x)
        torch.use_deterministic_algorithms(False)
        assert compiled.counts() == (0, 0)
        module(x)
        with torch.backends.cudnn.flags(enabled=True, benchmark=True):
            module(x)  # PyTorch's own choice is another one
        assert compiled.counts() == (2, 0)


@pytest.mark.parametrize(
    ("kind", "attribute", "value", "message"),
    [
        ("version", "TILESEER_TEST_VERSION", "92000", r"is for cudnn 91900, and this is cudnn 92000: install "
         r"nvidia-cudnn-cu13==9\.19\.0\.\*"),
        ("capability", "capability", (8, 0), "are for sm_90_cudnn, and this GPU is sm_80"),
        ("dtype", "dtype", torch.float16, "no model of forward_fp16"),
    ],
)  # fmt: skip
def test_what_the_model_does_not_know_is_said_once(
    enabled, compiled, image, layer, monkeypatch, kind, attribute, value, message
):
    dtype = value if kind == "dtype" else torch.bfloat16
    module, x = layer("Conv2d", 8, 8, 3, dtype=dtype), image(1, 8, 5, 5, dtype=dtype)
    if kind == "version":
        monkeypatch.setenv(attribute, value)
    other = type("Other", (CpuChooser,), {"capability": value}) if kind == "capability" else CpuChooser
    with enabled(verify=0, kind=other) as chooser, torch.no_grad(), pytest.warns(UserWarning, match=message):
        for _ in range(3):
            module(x)
    assert not chooser.choices.plans


def test_a_model_of_another_version_orders_the_plans_that_it_knows(enabled, compiled, image, layer, offer, monkeypatch):
    monkeypatch.setenv("TILESEER_TEST_VERSION", "92400")
    offer("eng7", "eng1", "eng8")
    timed = []
    monkeypatch.setattr(
        chooser_module, "fastest_in_turns", lambda call, names, device: timed.append(names) or names[-1]
    )
    modules, x = [layer("Conv2d", 8, count, 3) for count in (8, 16)], image(1, 8, 5, 5)
    with enabled(verify=2), torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for module in modules:
            for _ in range(3):
                module(x)
    assert timed == [["", "eng7", "eng1"]] * 2
    assert len(said(caught)) == 1 and "1 of the 3 of the first shape" in said(caught)[0]


def test_threads_choose_once(enabled, compiled, image, layer, monkeypatch):
    module, x = layer("Conv2d", 8, 8, 3), image(1, 8, 9, 9)
    expected, got = module(x), []

    def run():
        with torch.no_grad():
            got.extend(module(x) for _ in range(50))

    with enabled() as chooser:
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert compiled.counts() == (1, 1) and len(chooser.choices.plans) == 1
    assert len(got) == 200 and all(same(y, expected) for y in got)


def test_enabling_within_enabling_comes_back(enabled, compiled, image, layer):
    module, x = layer("Conv2d", 8, 8, 3), image(1, 8, 9, 9)
    with enabled() as outer, torch.no_grad():
        with pytest.warns(UserWarning, match="no CUDA device"), switch.enabled(outer.model):
            module(x)
        assert switch._active is outer
        module(x)
        assert compiled.counts() == (1, 0)


def test_a_model_that_is_missing_leaves_the_enabled_one(enabled, monkeypatch, tmp_path):
    with enabled() as outer:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.version, "cuda", "12.8")
        monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: True)
        monkeypatch.setattr(switch.extension, "load", lambda: outer.extension)
        with pytest.raises(UserError, match="missing"), switch.enabled(tmp_path / "missing"):
            pass
        assert switch._active is outer


def test_without_a_gpu_one_sentence(model, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.warns(UserWarning, match="no CUDA device with cuDNN; PyTorch's own choice runs"):
        switch.enable(model)
    with pytest.raises(UserError, match="nothing is enabled"):
        switch.save()
    for verify in (-1, "2"):
        with pytest.raises(UserError, match=f"verify is {verify!r}; give the number"):
            switch.enable(model, verify=verify)
