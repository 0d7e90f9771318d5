"""What a model's plans are predicted to gain for a network, layer by layer, on a machine without a GPU."""

from __future__ import annotations

import math
import runpy
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tileseer.core import documents
from tileseer.core.errors import UserError
from tileseer.gpus.hardware import Hardware
from tileseer.learn import model_files
from tileseer.problems.crawl.observed import Observed, tabulate_layers
from tileseer.problems.crawl.torch_record import META, record_torch
from tileseer.problems.problem import DIMS, Problem
from tileseer.serve.selector import NO_CANDIDATE, Selector
from tileseer.torch.chooser import check_cudnn
from tileseer.torch.listing import Cudnn

BYTES = 2
"""Of an element in bf16 and fp16."""
OF_PEAK, OF_BANDWIDTH = 0.55, 0.75
"""What convolutions and all other operators reach of the device; only shares of a step depend on it."""
TILE = 16
"""Channels that the matrix units take at least."""
WORTH = 1.01


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

    @property
    def saved_milliseconds(self) -> float:
        """Of all occurrences, predicted."""
        return self.occurrences * self.milliseconds * (self.gain - 1)


@dataclass(frozen=True)
class Report:
    """The layers of a step, and what the step is predicted to gain."""

    layers: list[Layer]
    other_milliseconds: float
    """Of all that is no convolution, estimated."""
    left_out: Counter[str]

    @property
    def gain(self) -> float:
        """Predicted time of a step with cuDNN's first plans over that with the picks."""
        picks = self.other_milliseconds + sum(layer.occurrences * layer.milliseconds for layer in self.layers)
        return (picks + self.saved_milliseconds) / picks if picks else 1.0

    @property
    def saved_milliseconds(self) -> float:
        """Of a step, predicted."""
        return sum(layer.saved_milliseconds for layer in self.layers)


class _Traffic(TorchDispatchMode):
    """Counts the elements that all operators but convolutions read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        views = any(value.alias_info and not value.alias_info.is_write for value in func._schema.returns)
        if "convolution" not in str(func) and not views:
            tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
            self.elements += sum(tensor.numel() for tensor in tensors)
        return result


def report(network: Path, models: Path, dtype: str, trained: bool) -> Report:
    """Run ``network`` on the meta device, list the plans of its convolutions, and pick.

    ``network`` is a Python file that defines ``model``, a module, and ``inputs``, a tensor or a tuple of them.
    """
    index, cudnn = check_cudnn(models, model_files.read_index(models)), Cudnn()
    model, inputs = _defined(network)
    traffic = _Traffic()

    def feed(model: Any) -> None:
        with traffic:
            result = model(*inputs)
            if trained:
                sum(leaf.float().sum() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)).backward()

    try:
        observed = record_torch(model, feed, trained)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"{network}: the model does not run on the meta device ({type(error).__name__}: {reason})"
        ) from error
    folder = models / next(iter(index.operations.values())).folder
    gpu = documents.read_document(folder / model_files.HARDWARE, Hardware)
    layers, left_out = _layers(observed, models, index.operations, dtype, cudnn, gpu)
    other = traffic.elements * BYTES / (gpu.hbm_tb_per_s * 1e12 * OF_BANDWIDTH)
    return Report(layers, 1e3 * other, left_out)


def _defined(network: Path) -> tuple[Any, tuple[Any, ...]]:
    try:
        try:
            with META:
                values = runpy.run_path(str(network))
        except (RuntimeError, NotImplementedError):  # it looks at values
            values = runpy.run_path(str(network))
    except FileNotFoundError as error:
        raise UserError(f"{network}: there is no such file") from error
    except Exception as error:  # the user's code may raise anything
        raise UserError(f"{network}: {type(error).__name__}: {error}") from error
    model, inputs = values.get("model"), values.get("inputs")
    if not isinstance(model, torch.nn.Module) or inputs is None:
        raise UserError(f"{network}: define model, a module, and inputs, a tensor or a tuple of tensors")
    tensors = inputs if isinstance(inputs, tuple | list) else (inputs,)
    return model.to(META), tuple(value.to(META) if isinstance(value, torch.Tensor) else value for value in tensors)


def _layers(
    observed: list[Observed], models: Path, operations: Mapping[str, Any], dtype: str, cudnn: Cudnn, gpu: Hardware
) -> tuple[list[Layer], Counter[str]]:
    table, left_out = tabulate_layers("", "", [conv for conv in observed if not conv.transposed])
    left_out["a transposed convolution"] += sum(conv.transposed for conv in observed)
    selectors: dict[str, Selector] = {}
    layers = []
    for row in table:
        for variant in row.directions:
            operation = f"{variant}_{dtype}"
            if operation not in operations:
                raise UserError(f"{models}: there is no model of {operation}")
            if operation not in selectors:
                selectors[operation] = _of_version(Selector.read(models, operation), cudnn.version, models)
            problem = Problem.from_dims(variant, dtype, **dict(zip(DIMS, row.dims, strict=True)))
            gain, pick = _pick(selectors[operation], problem, cudnn)
            layers.append(Layer(row.layer, problem, row.occurrences, _milliseconds(problem, gpu), gain, pick))
    return layers, +left_out


def _of_version(selector: Selector, version: str, models: Path) -> Selector:
    """The selector; ``UserError`` where its plans are not those of this cuDNN, whose gain nobody knows."""
    if selector.library != version:
        raise UserError(
            f"{models}: is for {selector.library}, and this is {version}, whose plans may be others; install that "
            "version (91900 is nvidia-cudnn-cu13==9.19.*), or measure yours (docs/nvidia.md)"
        )
    return selector


def _pick(selector: Selector, problem: Problem, cudnn: Cudnn) -> tuple[float, str]:
    offered = cudnn.offered(problem)
    if not offered:
        return 1.0, ""
    row = selector.choose(problem, offered, cudnn.version)
    if row == NO_CANDIDATE:
        return 1.0, offered[0]
    name = selector.kernels[row]
    scores = {one["kernel"]: one["score"] for one in selector.shortlist(problem, len(offered), offered, cudnn.version)}
    first = f"{name.partition('d_eng')[0]}d_{offered[0]}"
    return math.exp(max(0.0, scores[name] - scores[first])), name.partition(f"_{problem.ndim}d_")[2]


def _milliseconds(problem: Problem, gpu: Hardware) -> float:
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
