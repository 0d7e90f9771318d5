"""What runs behind the switch: results, gradients, what is chosen when, bounds, and what PyTorch keeps."""

import ctypes
import itertools
import math
import re
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

import tileseer.torch  # noqa: E402
from tileseer.core.errors import UserError  # noqa: E402
from tileseer.serve import tuned  # noqa: E402
from tileseer.torch import choices, switch  # noqa: E402

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


def test_every_shape_is_chosen_for_in_the_first_pass_through_a_network(enabled, compiled, image, layer, tmp_path):
    widths = (8, 16, 16, 8, 8)
    network = nn.Sequential(*(layer("Conv2d", *both, 3, padding=1) for both in itertools.pairwise(widths)))
    pyramid = nn.Sequential(network, nn.MaxPool2d(2), network[3], network[3])  # a layer at two sizes
    for module, kinds in ((network, 4 * 3 - 1), (pyramid, 5 * 3 - 1)):
        with enabled(path=tmp_path / str(kinds)) as chooser:
            for _ in range(2):
                module(image(2, 8, 18, 18)).sum().backward()
                assert compiled.counts() == (kinds, kinds) and len(chooser.choices.plans) == kinds


@pytest.fixture
def clock(monkeypatch):
    """The clock of the kernels; a choice takes 0.1 s of it."""

    class Clock:
        seconds = chosen = 0.0

        def add(self, seconds):
            self.seconds += seconds
            monkeypatch.setenv("TILESEER_TEST_SECONDS", str(self.seconds))

        def choose(self, chooser, call, problem):
            self.add(0.1)
            self.chosen += 0.1
            return "eng1", 0.5, 1.0, 2

    clock = Clock()
    clock.add(100.0)
    monkeypatch.setattr(CpuChooser, "_timed", lambda chooser, call, problem: clock.choose(chooser, call, problem))
    return clock


def test_new_sizes_cost_a_share_of_the_programs_time(enabled, compiled, image, layer, clock):
    network = nn.Sequential(layer("Conv2d", 4, 8, 3, padding=1), *(layer("Conv2d", 8, 8, 3) for _ in range(3)))
    with enabled(verify=None):
        for size in range(8, 208):
            network(image(1, 4, size, 8)).sum().backward()
            clock.add(0.05)
            if size == 8:
                in_first_pass, clock.chosen = clock.chosen, 0.0
        assert in_first_pass == pytest.approx(0.1 * 11)
        assert 0.2 < clock.chosen <= 0.05 * 200 * 0.05 + 0.1


def test_of_the_shapes_that_wait_the_one_that_takes_most_time_goes_first(enabled, compiled, image, layer, clock):
    first, module = layer("Conv2d", 4, 8, 3), layer("Conv2d", 8, 8, 3)
    large, small = image(1, 8, 64, 64), image(1, 8, 8, 8)
    with enabled(verify=None) as chooser, torch.no_grad():
        for _ in range(2):  # the second pass begins
            module(image(1, 8, 9, 9))
            first(image(1, 4, 9, 9))
            module(image(1, 8, 9, 9))
        module(image(1, 8, 10, 10))  # on credit
        heights = []
        for _ in range(200):
            module(small)
            module(large)
            clock.add(0.05)
            heights += [key.dims[5] for key in chooser.choices.plans if key.dims[5] not in (9, 10, *heights)]
        assert heights == [64, 8]


def test_a_shape_that_waits_asks_for_another_warm_up(compiled, image, layer, clock):
    module, said = layer("Conv2d", 4, 8, 3), []
    compiled.use(lambda call: clock.add(1.0) or "", lambda device: None, lambda: said.append(1), 100)
    compiled.turn(True)
    try:
        with torch.no_grad():
            for size in (5, 6, 5):
                module(image(1, 4, size, size))
                layer("Conv2d", 8, 8, 1)(image(1, 8, 3, 3))
            assert not said or len(said) == 1
            for _ in range(9):
                module(image(1, 4, 7, 7))
        assert 1 < len(said) < 9
    finally:
        compiled.turn(False)


def test_plans_are_kept_up_to_a_bound_and_come_back_when_known(enabled, compiled, image, layer, monkeypatch):
    monkeypatch.setattr(switch, "SHAPES_KEPT", 2)
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


@pytest.mark.parametrize("verify", [0, 2])
def test_the_next_process_makes_the_same_choices_at_once(enabled, compiled, image, layer, verify):
    module, x = layer("Conv2d", 8, 8, 3), image(1, 8, 5, 5)
    with enabled(verify) as chooser, torch.no_grad():
        for _ in range(3):
            module(x)
        path = chooser.choices.file("forward_bf16")
    times = {"eng1": (0.5, 4), "pytorch": (1.0, 4)} if verify else {"eng1": (0.0, 0)}
    kept = tuned.read_choices(path)
    assert {choice.candidate: (choice.time_ms, choice.timed) for choice in kept} == times
    assert {(choice.device, choice.device_kind) for choice in kept} == {("NVIDIA H200", "measured")}
    with enabled(verify) as chooser, torch.no_grad():
        module(x)
        assert compiled.counts() == (1, 1) and not chooser.choices._new and not chooser.timed
        assert switch.save() == path.parent
        assert chooser.choices.times == ({next(iter(chooser.choices.plans)): {"eng1": 0.5, "": 1.0}} if verify else {})
    assert tuned.read_choices(path) == kept


def test_gains_say_what_was_measured(enabled, model, image, layer):
    first, second = (layer("Conv2d", 8, count, 3, padding=1, bias=False) for count in (8, 16))
    x = image(1, 8, 5, 5)
    for _ in range(2):  # chosen, and known from the file
        with enabled(verify=2), torch.no_grad():
            for _ in range(10):
                for module in (first, second, second, second):
                    module(x)
            table = tileseer.torch.gains()
        columns = ["operation", "K", "calls", "plan", "pytorch_us", "plan_us", "saved_us"]
        assert table[columns].to_numpy().tolist() == [
            ["forward_bf16", 16, 3.0, "eng1", 1000.0, 500.0, 1500.0],
            ["forward_bf16", 8, 1.0, "eng1", 1000.0, 500.0, 500.0],
        ]
    pd.testing.assert_frame_equal(pd.read_csv(model.parent / "choices.tuned" / switch.GAINS), table)
    with enabled(verify=0), torch.no_grad():
        for _ in range(4):
            first(x)
        (row,) = tileseer.torch.gains().itertuples()
        assert row.plan == "eng1" and math.isnan(row.saved_us)
    pd.testing.assert_frame_equal(tileseer.torch.gains()[columns[:3]], pd.DataFrame([row])[columns[:3]])


def test_forgotten_parentheses_are_told():
    with pytest.raises(UserError, match=r"write with tileseer\.torch\.enabled\(\):"), tileseer.torch.enabled:
        pass


def key_of(number, benchmark=False):
    return choices.Key("forward_bf16", "GPU", benchmark, (number, *[1] * 18))


def choices_of(path, identity="of a test"):
    return choices.Choices(path, identity, ["forward_bf16"])


def test_processes_add_to_one_store_and_others_have_their_own(tmp_path):
    both = [choices_of(tmp_path / "store") for _ in range(2)]
    for number, one in enumerate(both):
        one.add(key_of(1, number), "eng1", 0.5, 3)
        one.add(key_of(2), choices.PYTORCH, 0.5, 3)
    for one in both:
        one.save()
    plans = {key_of(1): "eng1", key_of(1, True): "eng1", key_of(2): choices.PYTORCH}
    assert choices_of(tmp_path / "store").plans == plans
    assert not choices_of(tmp_path / "store", "of another version").plans
    path = both[0].file("forward_bf16")
    path.write_text(path.read_text().replace("eng1", "eng1_k2") + "more\n")
    assert choices_of(tmp_path / "store").plans == {key: plans[key] for key in (key_of(1, True), key_of(2))}


def test_each_recorded_plan_can_be_remembered(tmp_path):
    recorded = sorted(Path("config/recorded/sm_90_cudnn").glob("*/kernels.parquet"))
    kernels = pd.concat(pd.read_parquet(path) for path in recorded)["kernel"]
    names = kernels.str.extract(r"_[23]d_(eng.*)$")[0].unique().tolist()
    assert len(names) > 1000 and any("=-1" in name for name in names)
    one = choices_of(tmp_path / "store")
    for number, name in enumerate(names, 1):
        one.add(key_of(number), name, 0.5, 3)
    one.save()
    assert choices_of(tmp_path / "store").plans == one.plans


def test_a_store_that_cannot_be_read_ends_no_program(enabled, compiled, image, layer, tmp_path, capsys):
    module, x = layer("Conv2d", 8, 8, 3), image(1, 8, 5, 5)
    with enabled() as chooser:
        path = chooser.choices.file("forward_bf16")
    path.parent.mkdir()
    path.write_text("another table\n")
    with pytest.warns(UserWarning, match="the choices cannot be saved"), enabled(), torch.no_grad():
        assert "its choices are not used" in capsys.readouterr().err
        for _ in range(3):
            module(x)
        assert compiled.counts() == (1, 1)
    assert path.read_text() == "another table\n"


@pytest.mark.parametrize(
    ("offered", "verify", "milliseconds", "timed", "plan"),
    [
        # As many as are worth it, two, and then those that the model does not know.
        (("eng0", "eng8", "eng1"), None, {"eng1": 0.9}, ["eng0", "", "eng1", "eng8"], "eng1"),
        (("eng1", "eng2", "eng0", "eng8"), None, {"eng2": 0.5}, ["eng1", "", "eng2", "eng0"], "eng2"),
        # What cannot run takes no other's place.
        (("eng32", "eng20", "eng2", "eng0"), 1, {"eng2": 0.5}, ["", "eng2", "eng0"], "eng2"),
        # PyTorch's own, the first plan, and the model's best others: it prefers engine 1, then 2.
        (("eng0", "eng1", "eng2"), 2, {"eng1": 0.9}, ["eng0", "", "eng1", "eng2"], "eng1"),
        (("eng0", "eng1", "eng2"), 2, {"eng1": 0.9, "eng0": 0.8}, ["eng0", "", "eng1", "eng2"], "eng0"),
        (("eng1", "eng0", "eng2"), 1, {"": 0.5}, ["eng1", "", "eng2"], ""),
        (("eng7", "eng0", "eng1", "eng2"), 1, {"eng7": 0.5}, ["eng7", "", "eng1"], "eng7"),  # which it does not know
        # A tie stays with cuDNN's first plan, or where that cannot run with PyTorch.
        (("eng0", "eng1"), 2, {"eng1": 0.995, "": 0.992}, ["eng0", "", "eng1"], "eng0"),
        (("eng0", "eng1"), 2, {"eng1": 0.985}, ["eng0", "", "eng1"], "eng1"),
        (("eng30", "eng1"), 2, {"eng1": 0.995}, ["", "eng1"], ""),
        # What is wrong, cannot be built or needs too much workspace is not timed.
        (("eng20", "eng1"), 2, {"eng20": 0.1, "eng1": 0.5}, ["", "eng1"], "eng1"),
        (("eng30", "eng1"), 2, {"eng30": 0.1, "eng1": 0.5}, ["", "eng1"], "eng1"),
        (("eng32", "eng1"), 2, {"eng32": 0.1, "eng1": 0.5}, ["", "eng1"], "eng1"),
    ],
)
def test_the_fastest_of_those_that_are_timed_stays(
    enabled, compiled, image, layer, offer, offered, verify, milliseconds, timed, plan
):
    offer(*offered)
    module, x = layer("Conv2d", 8, 8, 3), image(4, 8, 9, 9)
    expected = module(x)
    with enabled(verify) as chooser, torch.no_grad():
        chooser.milliseconds = milliseconds
        for _ in range(4):
            got = module(x)
        assert chooser.timed == [timed] and list(chooser.choices.plans.values()) == [plan]
        assert compiled.counts() == (1, int(plan != "")) and same(got, expected)


@pytest.mark.parametrize("value", [0.0, float("inf"), float("nan")])
def test_what_the_operands_hold_says_nothing_of_a_plan(enabled, compiled, image, layer, offer, value):
    offer("eng20", "eng1")
    module, x = layer("Conv2d", 8, 8, 3), image(4, 8, 9, 9).fill_(value)
    with enabled(verify=2) as chooser, torch.no_grad():
        chooser.milliseconds = {"eng20": 0.1, "eng1": 0.5}
        for _ in range(3):
            module(x)
        assert chooser.timed == [["", "eng1"]] and list(chooser.choices.plans.values()) == ["eng1"]


def raises(error):
    raise error


def said(caught):
    return [str(one.message) for one in caught if "tileseer" in str(one.message)]


@pytest.mark.parametrize(
    ("offered", "attribute", "value", "message", "planned"),
    [
        ("eng31", "capability", (9, 0), "a plan of a shape found no memory; PyTorch's own choice", 0),
        ("eng1", "_clock", lambda *_: raises(MemoryError), "not enough memory to time", 0),
        ("eng1", "_clock", lambda *_: 1 / 0, "ZeroDivisionError.*PyTorch's own choice", 0),
        ("eng34", "capability", (9, 0), r"RuntimeError: engine 34 .*PyTorch's own choice", 0),
        ("eng1", "begin", lambda *_: 1 / 0, "division by zero", 1),
    ],
    ids=["a plan finds no memory", "no memory", "of the chooser", "of the program", "while models are read"],
)
def test_an_error_ends_no_program(enabled, compiled, image, layer, offer, offered, attribute, value, message, planned):
    offer(offered)
    module, x = layer("Conv2d", 8, 8, 3), image(1, 8, 5, 5)
    failing = type("Failing", (CpuChooser,), {attribute: value})
    with enabled(verify=2, kind=failing) as chooser, torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(5):
            module(x)
        assert compiled.counts() == (1, planned) and len(chooser.choices.plans) == planned
    (text,) = said(caught)
    assert re.search(message, text)


def test_what_lacked_memory_is_tried_again_but_not_at_each_call(enabled, compiled, image, layer, offer, monkeypatch):
    offer("eng31", "eng1")
    module, x = layer("Conv2d", 8, 8, 3), image(1, 8, 5, 5)
    expected = module(x)
    with enabled(verify=2) as chooser, torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chooser.milliseconds = {"eng31": 0.2, "eng1": 0.5}
        for _ in range(4):
            module(x)
        # The other plan runs, and the next process chooses among both.
        assert compiled.counts() == (1, 1) and chooser.timed == [["", "eng1"]] and not chooser.choices.plans
        monkeypatch.setenv("TILESEER_TEST_MEMORY", "1")
        other = layer("Conv2d", 8, 16, 3)
        for _ in range(4):
            other(x)
        assert list(chooser.choices.plans.values()) == ["eng31"] and compiled.counts() == (2, 2)
        monkeypatch.delenv("TILESEER_TEST_MEMORY")
        assert same(module(x), expected)
        for _ in range(40):
            other(x)
            assert compiled.counts() == (2, 1)
        monkeypatch.setenv("TILESEER_TEST_MEMORY", "1")
        # It was tried in the first call and after rests of 8 and 16; the next rest is of 32.
        for planned in (*[1] * 16, 2):
            other(x)
            assert compiled.counts() == (2, planned)
    assert len(said(caught)) == 2 and "a plan found no memory to run in" in said(caught)[1]


def test_choosing_may_wait_for_the_gpu_where_the_program_must_not(enabled, compiled, image, layer, monkeypatch):
    modes, used = [2], []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: modes[-1])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    monkeypatch.setattr(CpuChooser, "_choose", lambda *_: used.append(modes[-1]) or "eng1")
    module, x = layer("Conv2d", 8, 8, 3), image(1, 8, 5, 5)
    with enabled(verify=2), torch.no_grad():
        for _ in range(3):
            module(x)
        assert compiled.counts() == (1, 1) and used == [0] and modes == [2, 0, 2]


@pytest.mark.parametrize("library", [ctypes.PyDLL, ctypes.CDLL], ids=["the caller holds Python's lock", "it does not"])
def test_a_thread_that_is_none_of_pythons_never_waits_for_python(enabled, compiled, image, layer, capfd, library):
    convolve = library(compiled.__file__).convolve_in_thread
    module = layer("Conv2d", 8, 8, 3)
    with enabled() as chooser, torch.no_grad():
        for _ in range(2):
            convolve(5, 5)
        assert compiled.counts() == (1, 0) and not chooser.choices.plans
        for _ in range(3):
            module(image(1, 8, 5, 5))
        assert compiled.counts() == (1, 1)
        convolve(5, 5)
    with enabled() as chooser, torch.no_grad():
        module(image(1, 8, 7, 7))
        convolve(5, 1)  # what is known needs no Python
        assert compiled.counts() == (2, 2)
    assert capfd.readouterr().err.count("in a thread that is none of Python's") <= 1


def test_ctrl_c_while_choosing_reaches_the_program(enabled, image, layer, monkeypatch):
    def interrupted(chooser, call):
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.2)

    monkeypatch.setattr(CpuChooser, "_clock", interrupted)
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
    with enabled(verify=2) as chooser, torch.no_grad():
        chooser.milliseconds = {"eng33": 0.5}
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
        assert compiled.counts() == (2, 2)


@pytest.mark.parametrize(
    ("kind", "attribute", "value", "message"),
    [
        ("version", "TILESEER_TEST_VERSION", "92000", r"is for cudnn 91900, and this is cudnn 92000, where its plans "
         r"have to be timed \(verify=2\); PyTorch 2\.11 brings cuDNN 9\.19: install torch==2\.11\.\*, or measure"),
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
    modules, x = [layer("Conv2d", 8, count, 3) for count in (8, 16)], image(1, 8, 5, 5)
    with enabled(verify=2) as chooser, torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for module in modules:
            for _ in range(3):
                module(x)
    assert chooser.timed == [["eng7", "", "eng1"]] * 2
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
        before = switch._active
        with pytest.warns(UserWarning, match="built without CUDA"), switch.enabled(outer.model):
            module(x)
        assert switch._active is before
        module(x)
        assert compiled.counts() == (1, 1)


def test_a_model_that_is_missing_leaves_the_enabled_one(enabled, tmp_path):
    with enabled():
        before = switch._active
        with pytest.raises(UserError, match="missing"), switch.enabled(tmp_path / "missing"):
            pass
        assert switch._active is before is not None
    assert switch.save() == before.write()
