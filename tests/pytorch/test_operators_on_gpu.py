"""The operators on an NVIDIA GPU with cuDNN; plans are chosen by the tests, so that no model is needed."""

import gc
import json
import threading
import warnings

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

from tileseer.learn import model_files  # noqa: E402
from tileseer.torch import Plans, optimize  # noqa: E402

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
TOLERANCE = 0.02


class LastPlans(Plans):
    """Picks the last plan that cuDNN offers and can build, which is hardly PyTorch's."""

    def _pick(self, shape, problem, operation, device, operands):
        self.offers = shape.offered()
        self.picked = getattr(self, "picked", 0) + 1
        return next((name for name in reversed(self.offers) if self._built(shape, name)), "")

    def _unsupported(self, operation, device):
        return ""


@pytest.fixture
def plans(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    index = {
        "format": model_files.FORMAT, "arch": "sm_90_cudnn", "device": "sm_90_h200", "device_kind": "recorded",
        "sha256": {},
        "operations": {"forward_bf16": {"folder": "grouped_conv_forward_bf16_sm_90_cudnn"}},
    }  # fmt: skip
    (folder / "index.json").write_text(json.dumps(index))
    return LastPlans(folder)


def layer(ndim, inputs, outputs, kernel, dtype=torch.bfloat16, **options):
    kind = {2: torch.nn.Conv2d, 3: torch.nn.Conv3d}[ndim]
    return kind(inputs, outputs, kernel, device="cuda", dtype=dtype, **options).to(memory_format=LAST[ndim + 2])


def image(*shape, dtype=torch.bfloat16):
    return torch.randn(shape, device="cuda", dtype=dtype).to(memory_format=LAST[len(shape)])


def difference(one, other):
    one, other = one.double(), other.double()
    return float((one - other).norm() / other.norm())


def gradients(module, x, grad):
    x = x.detach().requires_grad_()
    y = module(x)
    return [y, *torch.autograd.grad(y, (x, *module.parameters()), grad)]


CASES = [
    (2, 16, 32, 3, (4, 16, 20, 20), {"padding": 1}),
    (2, 16, 32, 3, (4, 16, 21, 21), {"padding": 1, "stride": 2, "bias": False}),
    (2, 32, 32, 3, (2, 32, 14, 14), {"padding": 2, "dilation": 2, "groups": 4}),
    (2, 64, 64, 3, (2, 64, 14, 14), {"padding": 1, "groups": 64}),
    (2, 64, 128, 1, (2, 64, 7, 7), {}),
    (2, 3, 64, 7, (2, 3, 32, 32), {"padding": 3, "stride": 2}),
    (3, 8, 16, 3, (2, 8, 6, 10, 10), {"padding": 1}),
    (3, 8, 16, (1, 3, 3), (2, 8, 6, 10, 10), {"padding": (0, 1, 1), "stride": (1, 2, 2)}),
]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("ndim", "inputs", "outputs", "kernel", "shape", "options"), CASES)
def test_results_and_gradients_are_right(plans, ndim, inputs, outputs, kernel, shape, options, dtype):
    module, x = layer(ndim, inputs, outputs, kernel, dtype, **options), image(*shape, dtype=dtype)
    grad = torch.randn_like(module(x))
    exact = type(module)(inputs, outputs, kernel, device="cuda", dtype=torch.float64, **options)
    exact.load_state_dict(module.state_dict())
    expected = gradients(exact, x.double(), grad.double())
    with optimize(module, plans) as optimized:
        assert optimized.replaced == 1
        got = gradients(module, x, grad)
    assert all(difference(one, other) < TOLERANCE for one, other in zip(got, expected, strict=True))
    assert got[0].is_contiguous(memory_format=LAST[ndim + 2])
    assert plans.picked == 3 and any(plans.chosen.values())
    assert torch.equal(module(x), type(module).forward(module, x))


def test_strange_inputs_are_right(plans):
    module = layer(2, 16, 32, 3, padding=1)
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
    with optimize(module, plans):
        for name, x in inputs.items():
            y = module(x)
            assert y.shape == expected[name].shape, name
            if y.numel():
                assert difference(y, expected[name]) < TOLERANCE, name


def test_only_the_gradients_that_are_needed(plans):
    module, x = layer(2, 16, 32, 3, padding=1), image(4, 16, 20, 20)
    with optimize(module, plans):
        module(x).sum().backward()
        assert module.weight.grad is not None and plans.picked == 2
        module.requires_grad_(False)
        x.requires_grad_()
        module(x).sum().backward()
        assert x.grad is not None and plans.picked == 3
        # A gradient of a gradient is PyTorch's own.
        (grad,) = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
        grad.sum().backward()


def test_autocast_compile_and_graphs_keep_the_plans(plans):
    module = layer(2, 16, 32, 3, torch.float32, padding=1)
    x = image(4, 16, 20, 20, dtype=torch.float32).requires_grad_()
    expected = module(x)
    with optimize(module, plans), torch.autocast("cuda", torch.bfloat16):
        y = module(x)
        assert y.dtype == torch.bfloat16 and difference(y, expected) < TOLERANCE
        y.sum().backward()
        assert module.weight.grad.dtype == torch.float32 and plans.picked == 3
        for backend in ("aot_eager", "inductor"):
            torch._dynamo.reset()
            compiled = torch.compile(module, backend=backend, fullgraph=True)
            y = compiled(x)
            assert difference(y, expected) < TOLERANCE
            y.sum().backward()
        assert plans.picked == 3
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            y = module(x)
        graph.replay()
        assert difference(y, expected) < TOLERANCE


def test_nothing_is_built_while_a_graph_is_captured(plans):
    module, x = layer(2, 16, 32, 3, padding=1), image(3, 16, 20, 20)
    expected = module(x)
    with optimize(module, plans), torch.no_grad():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = module(x)
        graph.replay()
        assert difference(y, expected) < TOLERANCE and not plans.chosen


def test_switches_of_pytorch_are_respected(plans):
    module, x = layer(2, 16, 32, 3, padding=1), image(4, 16, 20, 20)
    with optimize(module, plans), torch.no_grad():
        with torch.backends.cudnn.flags(enabled=True, deterministic=True):
            module(x)
        with torch.backends.cudnn.flags(enabled=False):
            module(x)
        torch.use_deterministic_algorithms(True)
        module(x)
        torch.use_deterministic_algorithms(False)
        assert not plans.chosen
        module(x)
        assert len(plans.chosen) == 1


def test_streams_and_threads(plans):
    module, x = layer(2, 16, 32, 3, padding=1), image(4, 16, 20, 20)
    expected, results = module(x), []

    def run():
        with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad():
            results.extend(module(x) for _ in range(50))
            torch.cuda.current_stream().synchronize()

    torch.cuda.synchronize()
    with optimize(module, plans):
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 200 and plans.picked == 1
    assert all(difference(y, expected) < TOLERANCE for y in results)


def test_the_next_process_makes_the_same_choice(plans):
    module, x = layer(2, 16, 32, 3, padding=1), image(5, 16, 20, 20)
    with optimize(module, plans), torch.no_grad():
        module(x)
    plans.save()
    again = LastPlans(plans.model)
    assert again.chosen == plans.chosen
    with optimize(module, again), torch.no_grad():
        module(x)
    assert not hasattr(again, "picked")


def test_verify_times_in_turns(plans):
    from tileseer.torch.timing import fastest_in_turns

    module, x = layer(2, 64, 64, 3, padding=1), image(32, 64, 56, 56)
    seen = {}

    def pick(shape, problem, operation, device, operands):
        names = [name for name in shape.offered() if plans._built(shape, name)][:3]
        seen["best"], seen["ms"] = fastest_in_turns(shape, names, operands)
        return seen["best"]

    plans._pick = pick
    expected = module(x)
    with optimize(module, plans), torch.no_grad():
        assert difference(module(x), expected) < TOLERANCE
    assert 0.005 < seen["ms"] < 5


def test_memory_is_given_back(plans):
    module, x = layer(2, 64, 64, 3, padding=1), image(32, 64, 56, 56)
    with optimize(module, plans), torch.no_grad():
        module(x)
        gc.collect()
        before = torch.cuda.memory_allocated()
        for _ in range(3):
            module(x)
        assert torch.cuda.memory_allocated() == before


def test_a_fallback_is_said_once(plans):
    module, x = layer(2, 16, 32, 3, torch.float32, padding=1), image(4, 16, 20, 20, dtype=torch.float32)
    with warnings.catch_warnings(record=True) as caught, optimize(module, plans):
        warnings.simplefilter("always")
        module(x)
        module(x)
    assert sum("neither bfloat16" in str(one.message) for one in caught) <= 1
