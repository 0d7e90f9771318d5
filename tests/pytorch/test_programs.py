"""What programs do with convolutions goes on while the switch is on: the same results, and no module is touched."""

import copy
import io
import os
import pickle
import signal
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")

import torch_on_cpu  # noqa: E402
from torch import nn  # noqa: E402
from torch_on_cpu import PLANS  # noqa: E402

from tileseer.core import cache  # noqa: E402
from tileseer.serve.tuned import read_choices  # noqa: E402
from tileseer.torch import extension  # noqa: E402

SHAPE = 2, 8, 9, 9


@pytest.fixture
def convolution(layer):
    return layer("Conv2d", 8, 8, 3, padding=1)


@pytest.fixture
def x(image):
    return image(*SHAPE)


def close(one, other):
    assert one.shape == other.shape and one.dtype == other.dtype
    if other.numel():
        assert (one - other).abs().double().norm() <= 0.02 * other.abs().double().norm()


def as_without(enabled, offer, compute, planned=None, times=4):
    """Check that a function of no arguments returns the same thing each time while plans are chosen and run."""
    offer("eng0")  # it computes what it is given, always
    expected = compute()
    with enabled(verify=0) as chooser:
        chooser._known_names = lambda selector, ndim: frozenset(["eng0"])
        got = [compute() for _ in range(times)]
        if planned is not None:
            assert chooser.extension.counts()[1] == planned
    for one in got:
        torch.utils._pytree.tree_map(close, one, expected)
    return got[-1]


def test_padding_and_its_mode_may_be_set_at_any_time(enabled, offer, convolution, x):
    module = copy.deepcopy(convolution).requires_grad_(False)

    def compute():
        module.padding = (1, 1)
        results = [module(x)]
        for mode in ("circular", "reflect"):
            module.padding_mode = mode
            module._reversed_padding_repeated_twice = [1, 1, 1, 1]
            results.append(module(x))
        module.padding, module.padding_mode = (2, 2), "zeros"
        return [*results, module(x)]

    as_without(enabled, offer, compute, planned=3)


def test_forward_mode_functional_gradients_and_their_gradients(enabled, offer, convolution, x):
    weights = {name: value.detach() for name, value in convolution.named_parameters()}

    def loss(weight, one):
        values = {**weights, "weight": weight}
        return torch.func.functional_call(convolution, values, (one[None],)).float().square().sum()

    def compute():
        primal, tangent = torch.func.jvp(convolution, (x,), (torch.ones_like(x),))
        assert tangent.abs().sum() > 0
        gradient = torch.func.grad(loss)(weights["weight"], x[0])
        each = torch.vmap(torch.func.grad(loss), (None, 0))(weights["weight"], x)
        image = x.detach().requires_grad_()
        (first,) = torch.autograd.grad(convolution(image).square().sum(), image, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), convolution.weight)
        return [value.detach() for value in (primal, tangent, gradient, each, first, second)]

    as_without(enabled, offer, compute)


def test_wrong_arguments_have_pytorchs_message(enabled, convolution, x):
    for options, message in [
        ({"stride": 0}, "non-positive stride"),
        ({"stride": []}, "stride"),
        ({"padding": -1}, "negative padding"),
        ({"dilation": 0}, "dilation"),
        ({"groups": 3}, "groups|divisible"),
    ]:
        with enabled(), pytest.raises(RuntimeError, match=message):
            nn.functional.conv2d(x, convolution.weight, **options)


def test_complex_and_float_weights_and_one_image(enabled, offer, convolution, x):
    complex_layer = nn.Conv2d(8, 4, 3, dtype=torch.complex64)
    line = nn.Conv1d(8, 4, 3).bfloat16()

    def compute():
        with torch.no_grad():
            return [
                complex_layer(x.to(torch.complex64)),
                nn.functional.conv2d(x.float(), convolution.weight.float()),
                convolution(x[0]),
                convolution(x[:0]),
                line(x[:, :, 0]),
            ]

    as_without(enabled, offer, compute)


def test_traces_scripts_exports_and_copies_see_the_module(enabled, offer, convolution, x):
    network = nn.Sequential(convolution, nn.BatchNorm2d(8).bfloat16(), nn.ReLU()).eval()

    def compute():
        traced = torch.fx.symbolic_trace(network)
        assert type(traced.get_submodule("0")) is nn.Conv2d
        exported = torch.export.export(network, (x,))
        assert torch.ops.aten.conv2d.default in {node.target for node in exported.graph.nodes}
        fused = torch.ao.quantization.fuse_modules(copy.deepcopy(network), ["0", "1"])
        file = io.BytesIO()
        torch.jit.save(torch.jit.script(network), file)
        file.seek(0)
        normed = nn.utils.parametrizations.weight_norm(copy.deepcopy(convolution))
        average = torch.optim.swa_utils.AveragedModel(network)
        average.update_parameters(network)
        nn.utils.parametrize.remove_parametrizations(normed, "weight")
        copied = pickle.loads(pickle.dumps(network))
        assert type(normed) is type(copied[0]) is nn.Conv2d
        models = traced, exported.module(), fused, torch.jit.load(file), normed, average, copied
        return [model(x).detach() for model in models]

    as_without(enabled, offer, compute)


def test_an_export_to_onnx_is_that_of_pytorch(enabled, offer, convolution, x):
    pytest.importorskip("onnxscript")
    network = nn.Sequential(convolution, nn.ReLU()).float().eval()

    def compute():
        program = torch.onnx.export(network, (x.float(),), dynamo=True, verbose=False)
        assert [node.op_type for node in program.model.graph] == ["Conv", "Relu"]
        return [torch.from_numpy(program.model.graph.initializers["0.weight"].const_value.numpy())]

    as_without(enabled, offer, compute, times=1)


@pytest.fixture
def process_group(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_a_sharded_training_has_the_same_state(enabled, offer, x, process_group):
    from torch.distributed.fsdp import fully_shard

    mesh = torch.distributed.init_device_mesh("cpu", (1,))

    def compute():
        torch.manual_seed(0)
        # FSDP shards contiguous weights alone: each call converts them.
        network = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)).bfloat16()
        for module in (network[0], network[2], network):
            fully_shard(module, mesh=mesh)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        for _ in range(2):
            network(x).float().square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return {name: value.full_tensor() for name, value in network.state_dict().items()}

    as_without(enabled, offer, compute, planned=3)


def test_counters_modes_and_checkpoint_policies_see_pytorchs_operator(enabled, offer, convolution, x):
    from torch.utils import checkpoint
    from torch.utils.flop_counter import FlopCounterMode

    kept = []

    def policy(context, operation, *arguments, **options):
        kept.append(operation)
        return checkpoint.CheckpointPolicy.MUST_SAVE

    def compute():
        with FlopCounterMode(display=False) as counter:
            convolution(x).sum().backward()
        image = x.detach().requires_grad_()
        contexts = lambda: checkpoint.create_selective_checkpoint_contexts(policy)  # noqa: E731
        checkpoint.checkpoint(convolution, image, use_reentrant=False, context_fn=contexts).sum().backward()
        assert torch.ops.aten.convolution.default in kept
        return [torch.tensor(counter.get_total_flops()), image.grad]

    as_without(enabled, offer, compute, planned=3)


def test_what_is_timed_is_seen_by_no_mode_of_the_program(enabled, compiled, convolution, x, monkeypatch):
    from torch.overrides import TorchFunctionMode
    from torch.utils.flop_counter import FlopCounterMode

    def clock_of(chooser, call):
        def clock(names):
            for name in names:
                torch.empty(8).zero_()
                call.run(name)
            return [chooser.milliseconds.get(name, 1.0) for name in names]

        return clock

    class Seen(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), options=None):
            seen.append(function)
            return function(*arguments, **(options or {}))

    monkeypatch.setattr(torch_on_cpu.CpuChooser, "_clock", clock_of)
    seen, transformed = [], torch.vmap(lambda one: convolution(one[None])[0])
    with enabled(verify=2), FlopCounterMode(display=False) as counter, Seen(), torch.inference_mode():
        counts = []
        for _ in range(4):
            convolution(x)
            counts.append(counter.get_total_flops())
        assert compiled.counts() == (1, 1) and counts == [counts[0] * times for times in (1, 2, 3, 4)]
        assert seen.count(torch.conv2d) == 4 and torch.empty not in seen
    with enabled(verify=2), torch.no_grad():
        results = [transformed(x) for _ in range(4)]
    close(results[-1], convolution(x).detach())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_code_keeps_the_plans(enabled, offer, convolution, x, backend):
    torch._dynamo.reset()
    compiled = torch.compile(nn.Sequential(convolution, nn.ReLU(), convolution), backend=backend, fullgraph=True)

    def compute():
        image = x.detach().requires_grad_()
        y = compiled(image)
        (gradient,) = torch.autograd.grad(y.sum(), image)
        return [y.detach(), gradient]

    as_without(enabled, offer, compute)


def test_autocast_runs_the_plans(enabled, offer, layer, x):
    convolution = layer("Conv2d", 8, 8, 3, dtype=torch.float32)

    def compute():
        with torch.autocast("cpu", torch.bfloat16):
            y = convolution(x.float())
        (gradient,) = torch.autograd.grad(y.float().sum(), convolution.weight)
        assert y.dtype == torch.bfloat16 and gradient.dtype == torch.float32
        return [y.detach(), gradient]

    as_without(enabled, offer, compute, planned=2)


def test_frozen_parts_have_no_gradients_and_no_plans(enabled, compiled, convolution, x):
    frozen = copy.deepcopy(convolution).requires_grad_(False)
    with enabled() as chooser:
        for _ in range(3):
            convolution(frozen(x)).sum().backward()
        operations = {key.operation for key in chooser.choices.plans}
    assert operations == {"forward_bf16", "bwd_weight_bf16"}  # no gradient of the first input


def test_calls_around_the_operator_and_traced_ones_run_plans(enabled, offer, convolution, x):
    traced = torch.jit.trace(convolution, (x,))
    assert "aten::_convolution" in str(traced.graph)
    options = (None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, False)

    def compute():
        # As AOTInductor's code calls it: PyTorch's own function, which ends in the inner operator.
        around = torch.ops.aten._convolution(x, convolution.weight, *options, False, True, True)
        others = [
            torch.ops.aten._convolution(x, convolution.weight, *options, *flags) for flags in ((1, 1, 1), (0, 0, 1))
        ]
        return [value.detach() for value in (traced(x), around, *others)]

    as_without(enabled, offer, compute, planned=1)


RANK = """
import os, sys, torch, torch.distributed as dist
sys.path.insert(0, {folder!r})
import torch_on_cpu
from tileseer.torch import extension
torch_on_cpu.chooser.Selector = torch_on_cpu.Selector
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2)
torch.manual_seed(0)
network = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(
    *(torch.nn.Conv2d(8, 8, 3, padding=1) for _ in range(2))
).bfloat16().to(memory_format=torch.channels_last))
from pathlib import Path
chooser = torch_on_cpu.turn_on(Path(sys.argv[3]), 0, Path(sys.argv[4]), extension.load(torch_on_cpu.PLANS))
x = torch.randn(2, 8, 9, 9).bfloat16().to(memory_format=torch.channels_last)
for _ in range(4):
    network(x).float().square().mean().backward()
assert chooser.extension.counts()[1] == 3, chooser.extension.counts()
dist.destroy_process_group()
"""


def test_processes_of_a_distributed_training_share_a_file(model, compiled, offer, tmp_path):
    offer("eng1")
    script = RANK.format(folder=os.path.dirname(torch_on_cpu.__file__))
    arguments = [str(tmp_path / "store"), "RANK", str(model), str(tmp_path / "choices")]
    commands = [
        [sys.executable, "-c", script, *(rank if word == "RANK" else word for word in arguments)] for rank in "01"
    ]
    processes = [subprocess.Popen(command) for command in commands]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    assert sum(len(read_choices(path)) for path in (tmp_path / "choices.tuned").glob("*.tsv")) == 3


KILLED = """
import os, sys, torch
sys.path.insert(0, {folder!r})
import torch_on_cpu
from pathlib import Path
from tileseer.torch import choices, extension
torch_on_cpu.chooser.Selector = torch_on_cpu.Selector
choices.WRITTEN_EVERY_SECONDS = 1.0
torch_on_cpu.turn_on(Path(sys.argv[1]), 2, Path(sys.argv[2]), extension.load(torch_on_cpu.PLANS))
layer = torch.nn.Conv2d(8, 8, 3).bfloat16().to(memory_format=torch.channels_last)
with torch.no_grad():
    for size in range(5, 10):
        for _ in range(3):
            layer(torch.randn(1, 8, size, size).bfloat16().to(memory_format=torch.channels_last))
print("chosen", flush=True)
input()
"""


def test_a_program_that_is_killed_loses_the_choices_of_a_moment(model, compiled, offer, tmp_path):
    script = KILLED.format(folder=os.path.dirname(torch_on_cpu.__file__))
    command = [sys.executable, "-c", script, str(model), str(tmp_path / "choices")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"chosen\n"
        deadline = time.monotonic() + 60
        while len(rows := written(tmp_path)) < 10 and time.monotonic() < deadline:
            time.sleep(0.1)
        process.terminate()
    assert process.returncode == -signal.SIGTERM
    assert (
        sorted(row.candidate for row in rows)
        == ["eng1"] * 5 + ["pytorch"] * 5
        == sorted(row.candidate for row in written(tmp_path))
    )


def written(folder):
    return [row for path in (folder / "choices.tuned").glob("*.tsv") for row in read_choices(path)]


def test_what_a_killed_compilation_left_keeps_nobody_waiting(monkeypatch, tmp_path, compiled):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = cache.default_folder() / "torch" / f"tileseer_{extension._digest(PLANS)}"
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    made = []

    def load(name, build_directory, **options):
        assert not os.path.exists(os.path.join(build_directory, "lock"))
        os.symlink(compiled.__file__, os.path.join(build_directory, f"{name}.so"))
        made.append(name)

    monkeypatch.setattr("torch.utils.cpp_extension.load", load)
    monkeypatch.setattr(extension, "_import", lambda name, path: path)
    for _ in range(2):
        assert extension.load.__wrapped__(PLANS) == folder / f"{folder.name}.so"
    assert len(made) == 1
