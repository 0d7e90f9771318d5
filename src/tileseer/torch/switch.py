"""The switch: every convolution of the program on the GPU by chosen plans, until it is turned off."""

from __future__ import annotations

import atexit
import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from tileseer.core.errors import UserError, shown
from tileseer.torch import extension
from tileseer.torch.chooser import Chooser
from tileseer.torch.model_packages import model_of_gpu

SHAPES_KEPT = 4096
"""What was called least recently is forgotten beyond so many shapes, and its plan is freed."""
_active: Chooser | None = None
_prepared: Chooser | None = None
"""What the compiled kernels ask: turned off and on again, it has its plans still."""


def enable(model: Path | str | None = None, verify: int = 2, choices: Path | str | None = None) -> None:
    """Run each 2D and 3D convolution in bf16 or fp16, channels last, and its gradients, by the fastest known plan.

    ``model`` is the folder of published cuDNN models; None: those of the installed package for the GPU. At the third
    call of a shape, PyTorch's own choice, cuDNN's first plan and the model's ``verify`` best others are timed, and the
    fastest stays; with 0 the model alone decides. The folder ``CHOICES.tuned`` remembers the choices; None: one in the
    user's cache folder. ``UserError`` for a model that cannot be read; a warning where there is no GPU or compiler.
    """
    if not isinstance(verify, int) or verify < 0:
        raise UserError(f"verify is {shown(verify)}; give the number of the model's plans that are timed, 0 or more")
    disable()
    try:
        if torch.version.cuda is None or not torch.cuda.is_available() or not torch.backends.cudnn.is_available():
            raise UserError("there is no CUDA device with cuDNN")
        compiled = extension.load()
    except UserError as error:
        warnings.warn(f"tileseer: {error}; PyTorch's own choice runs instead", stacklevel=2)
        return
    folder = Path(model) if model else model_of_gpu(*torch.cuda.get_device_capability())
    chooser = Chooser(folder, verify, Path(choices) if choices else None, compiled)
    _turn_on(_prepared if _prepared and _prepared.identity == chooser.identity else chooser)


def disable() -> None:
    """Leave all convolutions to PyTorch again, and write the choices to their folder."""
    global _active
    if _active:
        _active.extension.turn(False)
        _save()
        _active = None


@contextlib.contextmanager
def enabled(model: Path | str | None = None, verify: int = 2, choices: Path | str | None = None) -> Iterator[None]:
    """Enable for the statements of a ``with``; afterwards it is as it was before."""
    before = _active
    try:
        enable(model, verify, choices)
        yield
    finally:
        disable()
        if before:
            _turn_on(before)


def save() -> Path:
    """Write the choices to their folder now, and return it; ``UserError`` where nothing is enabled."""
    if not _active:
        raise UserError("nothing is enabled whose choices could be saved; call tileseer.torch.enable first")
    _active.choices.save()
    return _active.choices.file("").parent


def _turn_on(chooser: Chooser) -> None:
    global _active, _prepared
    if chooser is not _prepared:
        chooser.extension.use(chooser.choose, chooser.begin, SHAPES_KEPT)
    chooser.extension.turn(True)
    _active = _prepared = chooser


@atexit.register
def _save() -> None:
    """Write the choices; a warning where that cannot be, since the program has done its work."""
    try:
        if _active:
            _active.choices.save()
    except (OSError, UserError) as error:
        warnings.warn(f"tileseer: the choices cannot be saved ({error})", stacklevel=2)
