"""Records the convolutions of a torch model on the meta device: shapes only, no weights, nothing computed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.utils._python_dispatch import TorchDispatchMode

from tileseer.core.errors import UserError
from tileseer.problems.crawl.observed import Observed

META = torch.device("meta")
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_CONVOLUTION = torch.ops.aten.convolution.default


class _Recorder(TorchDispatchMode):
    """Sees every convolution that reaches the dispatcher: of modules, of functions, of scripted code."""

    def __init__(self, names: dict[int, str], trained: bool) -> None:
        super().__init__()
        self.names = names
        self.trained = trained
        self.running: list[str] = []
        self.found: list[Observed] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _CONVOLUTION:
            self.found.append(self._observed(args))
        return func(*args, **(kwargs or {}))

    def _observed(self, args: Any) -> Observed:
        image, weight, _, stride, pad, dilation, transposed, output_pad, groups = args
        axes = weight.dim() - 2
        filters = weight.shape[1] * groups if transposed else weight.shape[0]
        return Observed(
            layer=self.running[-1] if self.running else "model",
            batch=image.shape[0],
            groups=groups,
            channels=image.shape[1],
            filters=filters,
            image=tuple(image.shape[2:]),
            filter=tuple(weight.shape[2:]),
            stride=_each(stride, axes),
            pad=_each(pad, axes),
            dilation=_each(dilation, axes),
            output_pad=_each(output_pad, axes),
            transposed=transposed,
            trained=self.trained,
            input_grad=self.trained and image.requires_grad,
        )

    def enter(self, module: nn.Module, inputs: object) -> None:
        """Note that ``module`` runs; what has no name of its own goes by that of its parent."""
        parent = self.running[-1] if self.running else "model"
        name = self.names.get(id(module)) or parent
        self.running.append(name)
        # PyTorch names neither the layer nor what it expects, on the meta device.
        if isinstance(module, CONVOLUTIONS) and isinstance(inputs, tuple) and inputs and hasattr(inputs[0], "shape"):
            shape, axes = tuple(inputs[0].shape), len(module.kernel_size)
            if len(shape) > axes and shape[-axes - 1] != module.in_channels:
                given = f"an image of {shape[-axes - 1]} channels, {' x '.join(map(str, shape))}"
                wanted = f"has weights for {module.in_channels}; give N x C x H x W"
                raise UserError(f"--input: the layer {name} gets {given}, and {wanted}")
            if len(shape) == axes + 1 and not self.found:
                given = "x".join(map(str, shape))
                raise UserError(f"--input: the layer {name} gets {given}, without a batch; give 8x{given} for one of 8")

    def leave(self, module: nn.Module, inputs: object, output: object) -> None:
        """Note that the innermost module has run."""
        self.running.pop()


def _each(values: list[int], axes: int) -> tuple[int, ...]:
    return tuple(values) * axes if len(values) == 1 else tuple(values)


@contextmanager
def _following(recorder: _Recorder) -> Iterator[None]:
    handles = [
        hooks.register_module_forward_pre_hook(recorder.enter),
        hooks.register_module_forward_hook(recorder.leave, always_call=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def build_model(make: Callable[[], Any]) -> Any:
    """Return the model of ``make`` on the meta device.

    Constructors that look at values cannot run there; they run on the CPU, and the model is moved.
    """
    try:
        with META:
            return make()
    except (RuntimeError, NotImplementedError):
        with torch.device("cpu"):
            model = make()
        return model.to(META)


def record_torch(model: Any, feed: Callable[[Any], object], trained: bool) -> list[Observed]:
    """Run ``feed`` on ``model`` and return its convolutions in order of execution.

    ``trained`` runs the model as in training, and says which inputs need gradients: parameters do, images do not.
    """
    names = {id(module): name for name, module in model.named_modules()}
    model.train(trained)
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.requires_grad_(trained)
    recorder = _Recorder(names, trained)
    with META, torch.set_grad_enabled(trained), _following(recorder), recorder:
        feed(model)
    return recorder.found
