"""Replaces the convolutions of a module, and puts them back."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import nn

from tileseer.core.errors import UserError
from tileseer.torch import extension
from tileseer.torch.plans import Plans

ATTRIBUTE = "tileseer_plans"
"""Of a replaced convolution: the number of its ``Plans``, and its padding of each axis."""


class _Planned:
    """What replaced convolutions share. The weights, the hooks and the state stay those of the module."""

    def _get_name(self) -> str:
        return f"Tileseer{type(self).__name__}"

    def _conv_forward(self: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if x.dim() != weight.dim():  # one image without a batch
            return super()._conv_forward(x, weight, bias)  # type: ignore[misc]
        plans, padding = getattr(self, ATTRIBUTE)
        arguments = x, weight, bias, self.stride, padding, self.dilation, self.groups, plans
        if torch.compiler.is_compiling():
            return torch.ops.tileseer.convolution.default(*arguments)
        # The same operator, by a shorter way through Python.
        return _call(*arguments)


class Conv2d(_Planned, nn.Conv2d):
    """A 2D convolution by chosen plans."""


class Conv3d(_Planned, nn.Conv3d):
    """A 3D convolution by chosen plans."""


REPLACED = {nn.Conv2d: Conv2d, nn.Conv3d: Conv3d}


def _call(*arguments: Any) -> torch.Tensor:
    return extension.load().convolution(*arguments)


class Optimized:
    """The convolutions that ``optimize`` replaced; as a context manager it puts them back at the end."""

    def __init__(self, replaced: list[Any], left: Counter[str]) -> None:
        """``left`` counts the convolutions that stay PyTorch's, by reason."""
        self._replaced, self.left = replaced, left

    @property
    def replaced(self) -> int:
        """Number of convolutions."""
        return len(self._replaced)

    def undo(self) -> None:
        """Make all of them PyTorch's own again."""
        for module in self._replaced:
            module.__class__ = type(module).__mro__[2]
            delattr(module, ATTRIBUTE)
        self._replaced = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


def optimize(model: nn.Module, plans: Plans | Path | str) -> Optimized:
    """Let the 2D and 3D convolutions of ``model`` run by ``plans``: those of a published model, or its folder.

    In place, whether the model is trained, compiled or captured afterwards. What the plans do not cover runs by
    PyTorch's own choice, and a warning says so once. Where the operators cannot be compiled nothing is replaced.
    """
    plans = plans if isinstance(plans, Plans) else Plans(plans)
    left: Counter[str] = Counter()
    try:
        if not torch.cuda.is_available():
            raise UserError("there is no CUDA device")
        plans.activate(extension.load())
    except UserError as error:
        warnings.warn(f"tileseer: {error}; the model is as it was", stacklevel=2)
        return Optimized([], left)
    replaced = []
    for module in model.modules():
        if reason := _not_replaced(module):
            left[reason] += 1
        elif type(module) in REPLACED:
            setattr(module, ATTRIBUTE, (plans.number, _padding(module)))
            module.__class__ = REPLACED[type(module)]
            replaced.append(module)
    return Optimized(replaced, left)


def _not_replaced(module: Any) -> str:
    """Why a convolution stays PyTorch's own; empty for one that does not, and for what is no convolution."""
    if isinstance(module, _Planned):
        return "it is replaced already"
    if isinstance(module, nn.ConvTranspose2d | nn.ConvTranspose3d):
        return "a transposed convolution"
    if not isinstance(module, nn.Conv2d | nn.Conv3d):
        return ""
    if type(module) not in REPLACED:
        return f"{type(module).__name__} has code of its own"
    if _padding(module) is None:
        return f"padding {module.padding!r} that is not alike on both sides"
    return "" if module.padding_mode == "zeros" else f"padding mode {module.padding_mode!r}"


def _padding(module: Any) -> Sequence[int] | None:
    """Padding of each axis, also where it is ``same`` or ``valid``; None where the two sides differ."""
    if not isinstance(module.padding, str):
        return module.padding
    both: list[int] = module._reversed_padding_repeated_twice  # PyTorch's own, from the last axis to the first
    return tuple(both[::-2]) if both[::2] == both[1::2] else None
