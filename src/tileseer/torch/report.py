"""What the switch is predicted to gain for a network, call by call, on a machine without a GPU."""

from __future__ import annotations

import math
import runpy
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.module_tracker import ModuleTracker

from tileseer.core import documents
from tileseer.core.errors import OF_FOREIGN_CODE, UserError
from tileseer.facts.hardware import Hardware
from tileseer.facts.operations import VARIANTS, Variant
from tileseer.learn import model_files
from tileseer.libraries.cudnn.versions import package_of_version
from tileseer.problems.problem import DIMS, Problem
from tileseer.serve.evaluation import Evaluation
from tileseer.serve.selector import NO_CANDIDATE, Selector
from tileseer.torch.chooser import check_cudnn
from tileseer.torch.listing import Cudnn

META = torch.device("meta")
BYTES = 2
"""Of an element in bf16 and fp16."""
OF_PEAK, OF_BANDWIDTH = 0.55, 0.75
"""What convolutions and all other operators reach of the device; only shares of a step depend on it."""
TILE = 16
"""Channels that the matrix units take at least."""
WORTH = 1.01
"""Gain of a step over PyTorch's default from which the switch is worth it."""
FIRST, DEFAULT, BENCHMARK = "cuDNN's first plan", "PyTorch's default", "PyTorch's benchmark mode"
"""What a model's evaluation compares its picks with."""


@dataclass(frozen=True)
class Layer:
    """One problem of the network."""

    layer: str
    problem: Problem
    occurrences: int
    milliseconds: float
    """Of one occurrence of the pick, estimated."""
    gain: float
    """Predicted time of cuDNN's first plan over that of the pick; 1 where that plan is kept."""
    pick: str
    """cuDNN's name of the plan; empty where PyTorch's own choice runs."""


@dataclass(frozen=True)
class Report:
    """The convolutions of a step, and what the step is predicted to gain."""

    layers: list[Layer]
    other_milliseconds: float
    """Of all that is no convolution, estimated."""
    left_out: Counter[str]
    pytorch: dict[str, dict[str, float]]
    """By operation and mode of PyTorch: its mean time over that of cuDNN's first plan, of the model's evaluation."""
    version: str
    """Of the cuDNN that listed the plans."""
    known: float
    """Share of the listed plans that the model knows."""

    def gain(self, mode: str) -> float:
        """Return the predicted time of a step in a mode of PyTorch over that with the switch."""
        total = self.other_milliseconds + sum(layer.occurrences * layer.milliseconds for layer in self.layers)
        return (total + sum(self.saved_milliseconds(layer, mode) for layer in self.layers)) / total if total else 1.0

    def saved_milliseconds(self, layer: Layer, mode: str) -> float:
        """Return what all occurrences of a layer are predicted to save."""
        operation = f"{layer.problem.variant}_{layer.problem.dtype}"
        gain = layer.gain * self.pytorch[operation][mode] if layer.pick else 1.0
        return layer.occurrences * layer.milliseconds * (gain - 1)


class _Calls(TorchDispatchMode):
    """Records the convolutions that reach the dispatcher, and counts the elements that all others read and write."""

    def __init__(self, dtype: str) -> None:
        super().__init__()
        self.dtype, self.elements = dtype, 0
        self.problems: dict[Problem, tuple[str, int]] = {}
        self.left_out: Counter[str] = Counter()
        self.tracker = ModuleTracker()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution.default:
            x, w, transposed = args[0], args[1], args[6]
            result = func(*args, **(kwargs or {}))
            self._add("bwd_data" if transposed else "forward", result if transposed else x, w, args[3:], x)
            return result
        if func is torch.ops.aten.convolution_backward.default:
            grad, x, w, _, *rest, mask = args
            image, transposed = (grad, True) if rest[3] else (x, False)
            directions: tuple[Variant, ...] = ("forward" if transposed else "bwd_data", "bwd_weight")
            for needed, variant in zip(mask, directions, strict=False):
                if needed:
                    self._add(variant, image, w, rest, x)
            return func(*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        if not any(value.alias_info and not value.alias_info.is_write for value in func._schema.returns):
            tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
            self.elements += sum(tensor.numel() for tensor in tensors)
        return result

    def _add(
        self, variant: Variant, image: torch.Tensor, w: torch.Tensor, rest: Sequence[Any], like: torch.Tensor
    ) -> None:
        stride, padding, dilation, _, _, groups = rest[:6]
        if reason := _not_chosen_for(image, w, like):
            self.left_out[reason] += 1
            return
        problem = problem_of(variant, self.dtype, image.shape, w.shape, stride, padding, dilation, groups)
        parents = sorted(self.tracker.parents - {"Global"}, key=len)
        name, uses = self.problems.get(problem, (parents[-1].partition(".")[2] if parents else "", 0))
        self.problems[problem] = name, uses + 1


def _not_chosen_for(image: torch.Tensor, w: torch.Tensor, like: torch.Tensor) -> str:
    """Return why a call stays PyTorch's whatever its data type becomes, or an empty string."""
    if not like.is_floating_point():
        return f"of {str(like.dtype).removeprefix('torch.')}"
    if image.dim() not in (4, 5):
        return f"{image.dim() - 2}D"
    if image.dim() == 5 and image.shape[2] == w.shape[2] == 1:
        return "3D without depth"
    return "" if image.numel() and w.numel() else "empty"


def problem_of(
    variant: Variant, dtype: str, image: Sequence[int], w: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], groups: int,
) -> Problem:  # fmt: skip
    """Return the problem of a call, as the compiled kernels see it; sizes as PyTorch has them."""
    ndim = len(image) - 2
    absent = 3 - ndim
    filters, ones, zeros = [*w[2:]], [1] * absent, [0] * absent
    # A filter extent of 1 reads the same pixels whatever its dilation: one problem, one choice.
    dilated = [d if extent > 1 else 1 for d, extent in zip(_of_axes(dilation, ndim), filters, strict=True)]
    dims = [image[0], image[1], w[0], groups, *ones, *image[2:], *ones, *filters]
    dims += [*ones, *_of_axes(stride, ndim), *zeros, *_of_axes(padding, ndim), *ones, *dilated]
    return Problem.from_dims(variant, dtype, **dict(zip(DIMS, dims, strict=True)))


def _of_axes(values: Sequence[int], ndim: int) -> list[int]:
    """Return a value of each axis, where there may be one for all."""
    return [*values] * (ndim if len(values) == 1 else 1)


def report(network: Path, models: Path, dtype: str, trained: bool) -> Report:
    """Run ``network`` on the meta device, list the plans of its convolutions, and pick.

    ``network`` is a Python file that defines ``model``, a module, and ``inputs``, a tensor or a tuple of them. All its
    convolutions count as of ``dtype`` and channels last.
    """
    index = check_cudnn(models, model_files.read_index(models))
    calls = record(network, dtype, trained)
    operations = {f"{problem.variant}_{dtype}" for problem in calls.problems}
    if missing := sorted(operations - set(index.operations)):
        raise UserError(f"{models}: there is no model of {missing[0]}")
    folders = {name: models / index.operations[name].folder for name in operations}
    selectors = {name: Selector.read(models, name) for name in operations}
    cudnn = _lister([selector.library for selector in selectors.values() if selector.library])
    layers, listed, known = [], 0, 0
    gpu = documents.read_document(
        models / next(iter(index.operations.values())).folder / model_files.HARDWARE, Hardware
    )
    for problem, (name, uses) in sorted(calls.problems.items(), key=lambda one: VARIANTS.index(one[0].variant)):
        selector = selectors[f"{problem.variant}_{dtype}"]
        offered = cudnn.offered(problem)
        names = {kernel.partition(f"_{problem.ndim}d_")[2] for kernel in selector.kernels}
        ordered = [plan for plan in offered if plan in names]
        listed, known = listed + len(offered), known + len(ordered)
        gain, pick = _pick(selector, problem, offered, ordered)
        layers.append(Layer(name, problem, uses, _milliseconds(problem, gpu), gain, pick))
    other = 1e3 * calls.elements * BYTES / (gpu.hbm_tb_per_s * 1e12 * OF_BANDWIDTH)
    pytorch = {name: _pytorch_over_first(folder) for name, folder in folders.items()}
    return Report(layers, other, calls.left_out, pytorch, cudnn.version, known / listed if listed else 1.0)


def record(network: Path, dtype: str, trained: bool) -> _Calls:
    """Return the calls of a step of ``network`` on the meta device."""
    model, inputs = _defined(network)
    calls = _Calls(dtype)
    try:
        with calls.tracker, calls, torch.set_grad_enabled(trained):
            outputs = [leaf for leaf in tree_leaves(model(*inputs)) if isinstance(leaf, torch.Tensor)]
            if trained:
                sum(
                    (leaf.float().sum() for leaf in outputs if leaf.requires_grad), torch.zeros((), device=META)
                ).backward()
    except OF_FOREIGN_CODE as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"{network}: the model does not run on the meta device ({type(error).__name__}: {reason})"
        ) from error
    return calls


def _lister(libraries: Sequence[str]) -> Cudnn:
    """Return the cuDNN that is installed; ``UserError`` names the package that lists the model's own plans."""
    try:
        return Cudnn()
    except UserError as error:
        if not libraries:
            raise
        wanted = package_of_version(libraries[0], torch.version.cuda)
        raise UserError(f"{error}; the model's own version is: pip install {wanted}") from error


def _defined(network: Path) -> tuple[Any, tuple[Any, ...]]:
    try:
        try:
            with META:
                values = runpy.run_path(str(network))
        except (RuntimeError, NotImplementedError):  # it looks at values
            values = runpy.run_path(str(network))
    except FileNotFoundError as error:
        raise UserError(f"{network}: there is no such file") from error
    except OF_FOREIGN_CODE as error:
        raise UserError(f"{network}: {type(error).__name__}: {error}") from error
    model, inputs = values.get("model"), values.get("inputs")
    if not isinstance(model, torch.nn.Module) or inputs is None:
        raise UserError(f"{network}: define model, a module, and inputs, a tensor or a tuple of tensors")
    tensors = inputs if isinstance(inputs, tuple | list) else (inputs,)
    return model.to(META), tuple(value.to(META) if isinstance(value, torch.Tensor) else value for value in tensors)


def _pick(selector: Selector, problem: Problem, offered: Sequence[str], known: Sequence[str]) -> tuple[float, str]:
    """Return the predicted gain over cuDNN's first plan, and the plan; the model orders the plans that it knows."""
    if not offered:
        return 1.0, ""
    if offered[0] not in known:
        return 1.0, offered[0]
    library = str(selector.library)
    row = selector.choose(problem, known, library)
    if row == NO_CANDIDATE:
        return 1.0, offered[0]
    name = selector.kernels[row]
    scores = {one["kernel"]: one["score"] for one in selector.shortlist(problem, len(known), known, library)}
    first = f"{name.partition('d_eng')[0]}d_{offered[0]}"
    return math.exp(max(0.0, scores[name] - scores[first])), name.partition(f"_{problem.ndim}d_")[2]


def _pytorch_over_first(folder: Path) -> dict[str, float]:
    """Return the mean time of PyTorch's modes over that of cuDNN's first plan, on the unseen layers of the evaluation.

    With PyTorch's own choice among what is timed, no layer is slower than its default.
    """
    compared = documents.read_document(folder / model_files.EVALUATION, Evaluation).libraries or []
    speeds = {one.library: one.speed for one in compared}
    ratios = {mode: speeds.get(mode, 1.0) / speeds.get(FIRST, 1.0) for mode in (DEFAULT, BENCHMARK)}
    return {**ratios, DEFAULT: max(1.0, ratios[DEFAULT])}


def _milliseconds(problem: Problem, gpu: Hardware) -> float:
    """Return the estimated time of a convolution, by what its arithmetic and its tensors take."""
    image = problem.N * problem.C * problem.Di * problem.Hi * problem.Wi
    filters = problem.K * (problem.C // problem.G) * problem.Z * problem.Y * problem.X
    moved = BYTES * (image + filters + problem.N * problem.K * math.prod(problem.output))
    # Of a group with few channels most of a tile of the matrix units is padding.
    padding = math.prod(max(1.0, TILE * problem.G / channels) for channels in (problem.C, problem.K))
    seconds = max(
        problem.flop * padding / (gpu.peak_tflops_16bit * 1e12 * OF_PEAK),
        moved / (gpu.hbm_tb_per_s * 1e12 * OF_BANDWIDTH),
    )
    return 1e3 * seconds
