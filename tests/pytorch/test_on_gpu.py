"""The kernels on an NVIDIA GPU with cuDNN; plans are chosen by the tests, so that no model is needed."""

import functools
import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

from tileseer.facts.operations import VARIANTS  # noqa: E402
from tileseer.problems.problem import DIMS, Problem  # noqa: E402
from tileseer.torch import extension  # noqa: E402
from tileseer.torch.chooser import clock_of_gpu, fastest_in_turns, synchronizing  # noqa: E402
from tileseer.torch.reference import Reference  # noqa: E402

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


@functools.cache
def reference_of(problem):
    return Reference(problem, torch.device("cuda"), extension.load().without_tf32)


def is_right(call, name):
    variant, sizes = VARIANTS[call.direction], dict(zip(DIMS, call.dims, strict=True))
    reference = reference_of(Problem.from_dims(variant, call.dtype, **sizes))
    return reference.error(functools.partial(call.launch, name)) <= 1


class LastPlan:
    """Picks the last plan that cuDNN offers and that is right, which is hardly PyTorch's."""

    def __init__(self):
        self.calls = []

    def __call__(self, call):
        self.calls.append(call)
        for name in reversed(call.offered()):
            try:
                if call.build(name) >= 1 << 28:
                    continue
            except RuntimeError:
                continue
            if is_right(call, name) and call.has_layout(name):
                return name
        return ""


@pytest.fixture
def compiled():
    module = extension.load()
    yield module
    module.turn(False)


@pytest.fixture
def chooser(compiled):
    made = LastPlan()
    compiled.use(made, lambda device: None, lambda: None, 100)
    return made


def layer(kind, *arguments, dtype=torch.bfloat16, **options):
    made = getattr(torch.nn, kind)(*arguments, device="cuda", dtype=dtype, **options)
    return made.to(memory_format=torch.channels_last_3d if "3d" in kind else torch.channels_last)


def image(*shape, dtype=torch.bfloat16):
    return torch.randn(shape, device="cuda", dtype=dtype).to(memory_format=LAST[len(shape)])


def difference(one, other):
    one, other = one.double(), other.double()
    return float((one - other).norm() / other.norm())


def results(module, x, grad):
    x = x.detach().requires_grad_()
    y = module(x)
    return [y, *torch.autograd.grad(y, (x, *module.parameters()), grad)]


CASES = [
    ("Conv2d", (16, 32, 3), (4, 16, 20, 20), {"padding": 1}),
    ("Conv2d", (16, 32, 3), (4, 16, 21, 21), {"padding": 1, "stride": 2, "bias": False}),
    ("Conv2d", (32, 32, 3), (2, 32, 14, 14), {"padding": 2, "dilation": 2, "groups": 4}),
    ("Conv2d", (64, 64, 3), (2, 64, 14, 14), {"padding": 1, "groups": 64}),
    ("Conv2d", (64, 128, 1), (2, 64, 7, 7), {}),
    ("Conv2d", (3, 64, 7), (2, 3, 32, 32), {"padding": 3, "stride": 2}),
    ("Conv2d", (1, 32, 3), (4, 1, 20, 20), {"padding": 1}),
    ("Conv3d", (8, 16, 3), (2, 8, 6, 10, 10), {"padding": 1}),
    ("Conv3d", (1, 32, 3), (2, 1, 12, 24, 24), {"padding": 1, "bias": False}),
    ("Conv3d", (24, 24, 3), (2, 24, 6, 20, 20), {"padding": 1, "groups": 24}),
    ("Conv3d", (8, 16, (1, 3, 3)), (2, 8, 6, 10, 10), {"padding": (0, 1, 1), "stride": (1, 2, 2)}),
    ("ConvTranspose2d", (32, 16, 3), (2, 32, 9, 9), {"stride": 2, "padding": 1, "output_padding": 1}),
    ("ConvTranspose3d", (32, 16, 2), (2, 32, 6, 6, 6), {"stride": 2}),
]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("kind", "arguments", "shape", "options"), CASES)
def test_results_and_gradients_are_right(compiled, chooser, kind, arguments, shape, options, dtype):
    module, x = layer(kind, *arguments, dtype=dtype, **options), image(*shape, dtype=dtype)
    grad = torch.randn_like(module(x))
    own = results(module, x, grad)
    exact = type(module)(*arguments, device="cuda", dtype=torch.float64, **options)
    exact.load_state_dict(module.state_dict())
    expected = results(exact, x.double(), grad.double())
    compiled.turn(True)
    for _ in range(4):
        got = results(module, x, grad)
    assert all(difference(one, other) < 0.02 for one, other in zip(got, expected, strict=True))
    assert [one.stride() for one in got] == [one.stride() for one in own]
    assert len(chooser.calls) == 3 and compiled.counts()[1] == 3


def test_the_gradient_is_converted_once(compiled, chooser):
    module, x = layer("Conv2d", 64, 64, 3, padding=1), image(4, 64, 20, 20)
    grad = torch.randn(4, 64, 20, 20, device="cuda", dtype=torch.bfloat16)  # not channels last

    def copies():
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            results(module, x, grad)
            torch.cuda.synchronize()
        return sum("copy" in event.name.lower() for event in profile.events())

    own = copies()
    compiled.turn(True)
    for _ in range(3):
        results(module, x, grad)
    assert compiled.counts() == (3, 3) and copies() <= own


def test_strange_inputs_are_right(compiled, chooser):
    module = layer("Conv2d", 16, 32, 3, padding=1)
    wide = image(4, 32, 20, 20)
    shifted = torch.randn(4 * 16 * 20 * 20 + 1, device="cuda", dtype=torch.bfloat16)[1:].view(4, 20, 20, 16)
    inputs = {
        "other layout": image(4, 16, 20, 20).contiguous(),
        "part of the channels": wide[:, 3:19],
        "not aligned": shifted.permute(0, 3, 1, 2),
        "empty": wide[:0, :16],
        "no batch": wide[0, :16],
    }
    expected = {name: module(x) for name, x in inputs.items()}
    compiled.turn(True)
    for name, x in 4 * list(inputs.items()):
        y = module(x)
        assert y.shape == expected[name].shape, name
        if y.numel():
            assert difference(y, expected[name]) < 0.02, name


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_code_runs_the_plans(compiled, chooser, backend):
    module, x = layer("Conv2d", 16, 32, 3, padding=1), image(4, 16, 20, 20)
    expected = module(x)
    compiled.turn(True)
    torch._dynamo.reset()
    compiled_module = torch.compile(module, backend=backend, fullgraph=True)
    for _ in range(4):
        y = compiled_module(x)
        y.sum().backward()
    assert difference(y, expected) < 0.02 and compiled.counts()[1] >= 2


def test_axes_of_one_value_have_no_stride(compiled, chooser):
    module, x = layer("Conv3d", 1, 8, 3, padding=1, bias=False), image(2, 1, 8, 16, 16)
    compiled.turn(True)
    module(x).sum().backward()
    assert compiled.counts() == (2, 2)


def test_graphs_keep_their_plans_when_these_are_forgotten(compiled, chooser):
    module, x = layer("Conv2d", 16, 32, 3, padding=1), image(4, 16, 20, 20)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        expected = module(x)
        compiled.turn(True)
        for _ in range(3):
            module(x)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            y = module(x)
        compiled.use(chooser, lambda device: None, lambda: None, 1)
        graph.replay()
        new = layer("Conv2d", 16, 8, 3)
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            new(x)  # a new shape: PyTorch's own
    assert difference(y, expected) < 0.02 and len(chooser.calls) == 1


def test_graphed_callables_keep_the_plans(compiled, chooser):
    module, x = layer("Conv2d", 16, 32, 3, padding=1), image(4, 16, 20, 20).requires_grad_()
    with torch.no_grad():
        expected = module(x)
    compiled.turn(True)
    graphed = torch.cuda.make_graphed_callables(module, (image(4, 16, 20, 20).requires_grad_(),))
    y = graphed(x)
    y.sum().backward()
    assert difference(y, expected) < 0.02 and compiled.counts()[1] == 3


def test_autocast_and_streams_and_threads(compiled, chooser):
    module = layer("Conv2d", 16, 32, 3, dtype=torch.float32, padding=1)
    x, results = image(4, 16, 20, 20, dtype=torch.float32), []
    expected = module(x)
    torch.cuda.synchronize()

    def run():
        with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            results.extend(module(x) for _ in range(80))
            torch.cuda.current_stream().synchronize()

    compiled.turn(True)
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 320 and len(chooser.calls) == 1
    assert all(difference(y, expected) < 0.02 for y in results)


def test_timing_prefers_a_plan_that_is_faster(compiled):
    timed = []

    def choose(call):
        names = [name for name in call.offered()[:6] if is_right(call, name)]
        clock = clock_of_gpu(call, torch.device("cuda", call.device))
        name, times_ms = fastest_in_turns(clock, ["", *names])
        timed.append(times_ms[name])
        return name

    compiled.use(choose, lambda device: None, lambda: None, 100)
    module, x = layer("Conv2d", 64, 64, 3, padding=1), image(32, 64, 56, 56)
    expected = module(x)
    compiled.turn(True)
    with torch.no_grad():
        for _ in range(4):
            y = module(x)
    assert len(timed) == 1 and 0 < timed[0] < 10 and difference(y, expected) < 0.02


def test_memory_is_given_back(compiled, chooser):
    module, x = layer("Conv2d", 64, 64, 3, padding=1), image(32, 64, 56, 56)
    compiled.turn(True)
    with torch.no_grad():
        for _ in range(3):
            module(x)
        gc.collect()
        chooser.calls.clear()
        before = torch.cuda.memory_allocated()
        for _ in range(3):
            module(x)
        assert torch.cuda.memory_allocated() == before


def test_what_cudnn_refuses_leaves_no_error_behind(compiled):
    refused = []

    def choose(call):
        for name in ("eng9999", "eng0_k99=7"):
            with pytest.raises(compiled.PlanError):
                call.build(name)
            refused.append(name)
        return ""

    compiled.use(choose, lambda device: None, lambda: None, 100)
    module, x = layer("Conv2d", 16, 32, 3, padding=1), image(4, 16, 20, 20)
    compiled.turn(True)
    with torch.no_grad():
        for _ in range(4):
            y = module(x)
    assert refused == ["eng9999", "eng0_k99=7"] and float((y * 0 + 1).sum()) == y.numel()


def test_choosing_synchronizes_where_the_program_must_not(compiled):
    def choose(call):
        with synchronizing():
            return str(torch.ones((), device="cuda").item())[:0]

    compiled.use(choose, lambda device: None, lambda: None, 100)
    module, x = layer("Conv2d", 16, 32, 3, padding=1), image(4, 16, 20, 20)
    compiled.turn(True)
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.no_grad():
            for _ in range(4):
                module(x)
        assert torch.cuda.get_sync_debug_mode() == 2 and compiled.counts() == (1, 0)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("kind", ["trace", "library"])
def test_compiled_libraries_and_traces_run_plans(compiled, chooser, tmp_path, kind):
    module, x = layer("Conv2d", 16, 32, 3, padding=1), image(4, 16, 20, 20)
    with torch.no_grad():
        expected = module(x)
        if kind == "trace":
            model = torch.jit.trace(module, (x,))
        else:
            package = torch._inductor.aoti_compile_and_package(
                torch.export.export(module, (x,)), package_path=str(tmp_path / "package.pt2")
            )
            load = f"import torch; torch._inductor.aoti_load_package({package!r})"
            if subprocess.run([sys.executable, "-c", load]).returncode:
                pytest.skip("PyTorch alone crashes where it loads such a library")
            model = torch._inductor.aoti_load_package(package)
        compiled.turn(True)
        for _ in range(4):
            y = model(x)
        assert difference(y, expected) < 0.02 and compiled.counts() == (1, 1)


def test_reduce_overhead_runs_plans(compiled):
    def choose(call):  # nothing that it allocates may outlive it
        name = next(name for name in call.offered() if is_right(call, name))
        reference_of.cache_clear()
        return name

    reference_of.cache_clear()
    compiled.use(choose, lambda device: None, lambda: None, 100)
    module, x = layer("Conv2d", 16, 32, 3, padding=1), image(4, 16, 20, 20)
    with torch.no_grad():
        expected = module(x)
        compiled.turn(True)
        torch._dynamo.reset()
        replayed = torch.compile(module, mode="reduce-overhead")
        for _ in range(5):
            torch.compiler.cudagraph_mark_step_begin()
            y = replayed(x).clone()
    assert difference(y, expected) < 0.02 and compiled.counts() == (1, 1)


FORKED = """
import os, sys, warnings
from pathlib import Path
import torch
sys.path.insert(0, sys.argv[1])
import torch_on_cpu
from tileseer.torch import enable, model_packages, save
gpus = model_packages.visible_gpus()
enable(torch_on_cpu.write_index(Path(sys.argv[2]) / "model"), choices=Path(sys.argv[2]) / "choices")
save()  # it is enabled
assert not torch.cuda.is_initialized() and not torch.cuda._is_in_bad_fork()
child = os.fork()
layer = torch.nn.Conv2d(8, 8, 3, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
x = torch.randn(1, 8, 9, 9, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
assert torch.cuda.get_device_capability() in gpus == model_packages.visible_gpus(), gpus
with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(20):
        layer(x)  # there is no model behind the index: a sentence
texts = [str(one.message) for one in caught if "tileseer" in str(one.message)]
assert len(texts) == 1 and texts[0].endswith("PyTorch's own choice runs instead"), texts
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_program_may_fork_after_it_has_enabled(compiled, tmp_path):
    builders = Path(__file__).parents[1] / "builders"
    subprocess.run([sys.executable, "-c", FORKED, str(builders), str(tmp_path)], check=True, timeout=300)
