"""What a plan computes beside exact arithmetic, on operands of the switch's own.

The operands have the shape's real extents and random values, so that nothing depends on what the program's hold: zeros
or infinities. Their images are a few that repeat, each time with a sign of its own. So all images of a result are
compared with those of few, which are computed in fp32 without TF32: tap by tap, and by no convolution of the library.

The values are those of bf16 or fp16, whose products fp32 holds exactly. A right plan rounds a sum of fp32 once: it may
be as far away as half a unit in the last place of each element, and by some share of the result's scale, for the order
of summation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tileseer.problems.problem import DIMS, Problem
from tileseer.problems.shapes import AXES, output_extent

BASES = 3
"""Images that differ in more than their sign: an odd number, since a plan takes images by powers of two."""
SEED = 20261128
GUARD_ELEMENTS = 1 << 15
"""Before and behind a result; a multiple of the alignment."""
UNTOUCHED = 0x7FC1
"""Bits of what no plan has written: a number in neither data type."""
CHUNK_ELEMENTS = 1 << 26
"""So many elements of a result are compared at a time, for the sake of memory."""
SCALE_SHARE = 2.0**-8
"""Of the scale of the result, what the order of summation may cost beside the rounding of the result.

Tensor cores cut off what an addition in fp32 loses, always towards zero: a sum of 10^6 products loses some 10^-3.
"""
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Reference:
    """Operands of one problem, and its exact result."""

    def __init__(
        self, problem: Problem, device: torch.device, without_tf32: Callable[[Callable[[], Any]], Any]
    ) -> None:
        """Make the operands on a device; ``without_tf32`` calls a function in which no product of fp32 is rounded."""
        sizes = dict(zip(DIMS, problem.dims, strict=True))
        self.variant, self.device = problem.variant, device
        self.dtype, self._axes = DTYPES[problem.dtype], AXES[3 - problem.ndim :]
        self._sizes, self._generator = sizes, torch.Generator(device).manual_seed(SEED)
        groups, batch = sizes["G"], sizes["N"]
        image = [sizes[axis[0]] for axis in self._axes]
        output = [output_extent(sizes, axis) for axis in self._axes]
        self._bases = min(batch, BASES)
        x = self._random(self._bases, *image, sizes["C"])
        y = self._random(self._bases, *output, sizes["K"])
        w = self._random(sizes["K"], *(sizes[axis[1]] for axis in self._axes), sizes["C"] // groups)
        self._signs = self._drawn_signs(batch)
        of_image = torch.arange(batch, device=device) % self._bases
        signs = self._signs.to(self.dtype).view(-1, *[1] * (len(image) + 1))
        if self.variant == "forward":
            self._operands: list[Tensor | None] = [x[of_image] * signs, w, None]
        elif self.variant == "bwd_data":
            self._operands = [None, w, y[of_image] * signs]
        else:
            self._operands = [x[of_image] * signs, None, y[of_image]]
        times = torch.zeros(self._bases, device=device).index_add_(0, of_image, self._signs)
        x = x.float() * times.view(-1, *[1] * (len(image) + 1)) if self.variant == "bwd_weight" else x.float()
        self._expected = without_tf32(lambda: self._exact(x, w.float(), y.float()))
        self.scale = float(self._expected.square().mean().sqrt())
        if self.variant == "bwd_weight":  # as if the images were independent
            self.scale *= math.sqrt(batch / float(times.square().sum()))

    def error(self, launch: Callable[[Tensor, Tensor, Tensor], None]) -> float:
        """Return how wrong a plan is: above 1, it is wrong. Infinite where it leaves or writes what it must not.

        ``launch`` queues it on input, weight and output, channels last; the one that it computes is not initialised.
        """
        shape = self._result_shape()
        count = math.prod(shape)
        room = torch.full((count + 2 * GUARD_ELEMENTS,), UNTOUCHED, dtype=torch.int16, device=self.device)
        guards = room[:GUARD_ELEMENTS], room[GUARD_ELEMENTS + count :]
        result = room[GUARD_ELEMENTS : GUARD_ELEMENTS + count].view(self.dtype).view(shape)
        launch(*(_channels_first(result if operand is None else operand) for operand in self._operands))
        touched = torch.stack([guard.ne(UNTOUCHED).any() for guard in guards]).any()
        worst = torch.where(touched, math.inf, self._worst(result)).item()
        if not worst <= 0.0 and not self.scale:
            return math.inf
        error = worst / (SCALE_SHARE * self.scale) if self.scale else 0.0
        return error if error == error else math.inf

    def _result_shape(self) -> tuple[int, ...]:
        batch = () if self.variant == "bwd_weight" else (self._sizes["N"],)
        return (*batch, *self._expected.shape[len(batch) :])

    def _worst(self, result: Tensor) -> Tensor:
        """Return by how much an element is farther away than its rounding, at most."""
        if self.variant == "bwd_weight":
            return self._beyond(result, self._expected)
        worst = []
        at_a_time = max(1, CHUNK_ELEMENTS // max(1, math.prod(result.shape[1:])))
        for base in range(self._bases):
            images, signs = result[base :: self._bases], self._signs[base :: self._bases]
            for part, sign in zip(images.split(at_a_time), signs.split(at_a_time), strict=True):
                worst.append(self._beyond(part, self._expected[base], sign.view(-1, *[1] * (result.ndim - 1))))
        return torch.stack(worst).max()

    def _beyond(self, result: Tensor, expected: Tensor, sign: Tensor | float = 1.0) -> Tensor:
        away = (result.float() * sign).sub_(expected).abs_()
        return away.sub_(expected.abs(), alpha=torch.finfo(self.dtype).eps / 2).max()

    def _random(self, *shape: int) -> Tensor:
        made = torch.empty(shape, dtype=torch.float32, device=self.device)
        return made.uniform_(-1.0, 1.0, generator=self._generator).to(self.dtype)

    def _drawn_signs(self, batch: int) -> Tensor:
        """Return 1 or -1 of each image; those of one base never cancel."""
        generator = torch.Generator().manual_seed(SEED)
        signs = 2.0 * torch.randint(0, 2, (batch,), generator=generator) - 1.0
        for base in range(self._bases):
            own = signs[base :: self._bases]
            if own.sum() == 0.0:
                own[-1] *= -1.0
        return signs.to(self.device)

    def _exact(self, x: Tensor, w: Tensor, y: Tensor) -> Tensor:
        """Return the result of the direction, of the others: [B, image, C], [K, filter, C / G], [B, output, K]."""
        groups, sizes = self._sizes["G"], self._sizes
        x, w, y = x.unflatten(-1, (groups, -1)), w.unflatten(0, (groups, -1)), y.unflatten(-1, (groups, -1))
        padding = [pad for axis in reversed(self._axes) for pad in (sizes[axis[3]], sizes[axis[3]])]
        padded = torch.nn.functional.pad(x, [0, 0, 0, 0, *padding])
        if self.variant == "forward":
            y = torch.zeros_like(y)
        elif self.variant == "bwd_data":
            padded = torch.zeros_like(padded)
        else:
            w = torch.zeros_like(w)
        outputs = y.shape[1:-2]
        for tap in itertools.product(*(range(sizes[axis[1]]) for axis in self._axes)):
            begins = [at * sizes[axis[4]] for at, axis in zip(tap, self._axes, strict=True)]
            steps = [sizes[axis[2]] for axis in self._axes]
            ranges = zip(begins, outputs, steps, strict=True)
            window = padded[:, *(slice(begin, begin + (count - 1) * step + 1, step) for begin, count, step in ranges)]
            weight = w[:, :, *tap]
            if self.variant == "forward":
                y += _forward(window, weight)
            elif self.variant == "bwd_data":
                window += _data(y, weight)
            else:
                weight += _weight(window, y)
        if self.variant == "forward":
            return y.flatten(-2)
        if self.variant == "bwd_weight":
            return w.flatten(0, 1)
        inner = [slice(sizes[axis[3]], sizes[axis[3]] + sizes[axis[0]]) for axis in self._axes]
        return padded[:, *inner].flatten(-2)


def _forward(x: Tensor, w: Tensor) -> Tensor:
    """Return the products of pixels [B, image, G, C / G] and weights [G, K / G, C / G]: [B, image, G, K / G]."""
    if w.shape[-1] == 1:
        return x * w.squeeze(-1)
    return _pixels(x).matmul(w.transpose(1, 2)).transpose(0, 1).reshape(*x.shape[:-1], -1)


def _data(y: Tensor, w: Tensor) -> Tensor:
    """Return the products of pixels [B, image, G, K / G] and weights [G, K / G, C / G]: [B, image, G, C / G]."""
    if w.shape[-1] == 1:
        return (y * w.squeeze(-1)).sum(-1, keepdim=True)
    return _pixels(y).matmul(w).transpose(0, 1).reshape(*y.shape[:-1], -1)


def _weight(x: Tensor, y: Tensor) -> Tensor:
    """Return the products of pixels [B, image, G, C / G] and [B, image, G, K / G]: [G, K / G, C / G]."""
    if x.shape[-1] == 1:
        return (x * y).sum(list(range(y.ndim - 2))).unsqueeze(-1)
    return _pixels(y).transpose(1, 2).matmul(_pixels(x))


def _pixels(image: Tensor) -> Tensor:
    """Return [B, image, G, C] as [G, pixels, C]."""
    return image.flatten(0, -3).transpose(0, 1)


def _channels_first(tensor: Tensor) -> Tensor:
    """Return a view with the channels, the last axis in memory, as the second one."""
    return tensor.movedim(-1, 1)
