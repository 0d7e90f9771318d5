"""The switch: every convolution of the program on the GPU by chosen plans, until it is turned off."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import warnings
from collections.abc import Collection
from numbers import Integral
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError, shown
from tileseer.facts.operations import VARIANTS
from tileseer.problems.problem import DIMS
from tileseer.torch import choices as stores
from tileseer.torch import extension, model_packages
from tileseer.torch.chooser import Chooser

SHAPES_KEPT = 4096
"""What was called least recently is forgotten beyond so many shapes, and its plan is freed."""
COLUMNS = ["operation", *DIMS, "calls", "plan", "pytorch_us", "plan_us", "saved_us"]
"""Of the table of ``gains``."""
GAINS = "gains.csv"
"""The last program's table of ``gains``, in the folder of the choices."""


class Program:
    """What the kernels ask: the chooser of a GPU's model, which is looked for at its first convolution.

    ``model`` is the folder of the models; None: those of the installed package for each GPU.
    """

    kind = Chooser

    def __init__(self, model: Path | None, verify: int | None, path: Path | None, compiled: Any) -> None:
        """Read a given model's index and its choices; ``UserError`` where these are none."""
        self.verify, self.path, self.extension = verify, path, compiled
        self.choosers: dict[Path, Chooser] = {}
        self._model = model
        self._of_device: dict[int, Chooser | None] = {}
        self.identity: tuple[object, ...] = (verify, path, self._chooser(model).identity if model else None)

    def prepare(self) -> None:
        """Read the models of the GPUs that are known without starting CUDA; what is wrong with them is said later."""
        with contextlib.suppress(UserError, OSError):
            gpus = [] if self._model else model_packages.visible_gpus()
            for folder in [self._model] if self._model else {model_packages.model_of_gpu(*gpu) for gpu in gpus}:
                self._chooser(folder).prepare()

    def begin(self, device: int) -> None:
        """Find the model of a GPU; one sentence where there is none."""
        try:
            folder = self._model or model_packages.model_of_gpu(*torch.cuda.get_device_capability(device))
            chooser = self._chooser(folder)
        except UserError as error:
            self._of_device[device] = None
            _warn(error)
            return
        self._of_device[device] = chooser
        chooser.begin(device)

    def choose(self, call: Any) -> str | None:
        """Return the plan of a call, as ``Chooser.choose`` does."""
        if call.device not in self._of_device:  # another thread is looking for it
            return None
        chooser = self._of_device[call.device]
        return chooser.choose(call) if chooser else stores.PYTORCH

    def write(self) -> Path:
        """Write the choices, and the table of ``gains`` beside them; return their folder."""
        folder = stores.folder(self.path)
        for chooser in self.choosers.values():
            chooser.choices.save()
        if len(table := self.gains()):
            write_text(folder / GAINS, table.to_csv(index=False, lineterminator="\n"))
        return folder

    def save(self) -> None:
        """Write the same; a warning where that cannot be, since the program has done its work."""
        try:
            self.write()
        except (OSError, UserError) as error:
            warnings.warn(f"tileseer: the choices cannot be saved ({error})", stacklevel=3)

    def gains(self) -> pd.DataFrame:
        """Return the table of ``gains``."""
        passes, shapes = self.extension.called()
        rows = []
        for device, direction, dtype, benchmark, dims, calls in shapes:
            if chooser := self._of_device.get(device):
                operation = f"{VARIANTS[direction]}_{dtype}"
                plan, own_us, plan_us = chooser.measured(operation, device, benchmark, tuple(dims))
                saved_us = calls / passes * (own_us - plan_us)
                rows.append((operation, *dims, calls / passes, plan, own_us, plan_us, saved_us))
        table = pd.DataFrame(rows, columns=COLUMNS)
        return table.sort_values("saved_us", ascending=False, kind="stable", ignore_index=True)

    def _chooser(self, folder: Path) -> Chooser:
        if folder not in self.choosers:
            self.choosers[folder] = self.kind(folder, self.verify, self.path, self.extension)
        return self.choosers[folder]


def ask_for_warm_up() -> None:
    """Let PyTorch 2.14 run a step again before it captures a graph of it: a shape waits for its plan."""
    ask = getattr(torch.compiler, "cudagraph_mark_warmup_incomplete", None)
    if ask:
        ask()


class _Scope:
    """The program, or the statements of a ``with``: what is enabled in it."""

    def __init__(self, program: Program | None = None) -> None:
        self.program = program


_lock = threading.RLock()
_scopes = [_Scope()]
"""The last one counts; threads may leave theirs in any order."""
_active: Program | None = None
_unable: Path | None = None
"""Folder of the choices of a call that has found nothing to enable on this machine: it has no gains, and no error."""
_prepared: Program | None = None
"""What the compiled kernels ask: turned off and on again, it has its plans still."""


def enable(
    model: Path | str | None = None, verify: int | None = None, choices: Path | str | None = None
) -> contextlib.AbstractContextManager[None]:
    """Run each 2D and 3D convolution in bf16 or fp16, channels last, and its gradients, by the fastest known plan.

    ``model`` is the folder of published cuDNN models; None: those of the installed package for the GPU. At the first
    call of a shape, PyTorch's own choice, cuDNN's first plan and the model's best others are timed, and the fastest
    stays: as many others as are worth it for the kind of layer, or ``verify``; with 0 the model alone decides. Shapes
    that come after the first pass through a network wait until a small share of the program's time makes up for them.
    The folder ``CHOICES.tuned`` remembers the choices; None: one in the
    user's cache folder. ``UserError`` for arguments that are none; a warning where the machine, its PyTorch or its
    packages have nothing that could be enabled. CUDA is not started. What is returned disables at the end of a
    ``with``.
    """
    _put(_scopes[-1], _made(model, verify, choices))
    return _UntilTheEnd()


class _UntilTheEnd(contextlib.AbstractContextManager[None]):
    """What ``with enable():`` means."""

    def __exit__(self, *_: object) -> None:
        disable()


def disable() -> None:
    """Leave all convolutions to PyTorch again, and write the choices to their folder."""
    _put(_scopes[-1], None)


class _IsCalled(type):
    """The type of ``enabled``, which forgotten parentheses would enter itself."""

    def __enter__(cls) -> None:
        raise UserError("enabled is called in a with: write with tileseer.torch.enabled():")

    def __exit__(cls, *_: object) -> None:
        pass


class enabled(contextlib.ContextDecorator, metaclass=_IsCalled):
    """Enable for the statements of a ``with``; afterwards it is as it was, or as another thread's is.

    It decorates a function as well, and can be used again.
    """

    _is_used = True

    def __init__(
        self, model: Path | str | None = None, verify: int | None = None, choices: Path | str | None = None
    ) -> None:
        """Take the arguments of ``enable``."""
        self._program = _made(model, verify, choices)
        self._entered: list[_Scope] = []
        self._is_used = False

    def __enter__(self) -> None:
        self._is_used = True
        self._entered.append(_Scope(self._program))
        _put(self._entered[-1], self._program)

    def __exit__(self, *_: object) -> None:
        with _lock:
            _scopes.remove(self._entered.pop())
            _apply()

    def __del__(self) -> None:
        if not self._is_used:
            warnings.warn("tileseer: enabled() does nothing without a with; call enable()", stacklevel=2)


def save() -> Path:
    """Write the choices to their folder now, and return it; ``UserError`` where nothing was enabled."""
    if program := _active or _prepared:
        return program.write()
    if not _unable:
        raise UserError("nothing was enabled whose choices could be saved; call tileseer.torch.enable first")
    _warn_of_nothing()
    return _unable


def gains() -> pd.DataFrame:
    """Return what was measured of the shapes that the program has called since it enabled, the greatest gain first.

    A row is a shape: its operation and 19 dimensions, ``calls`` by layers in one pass through the network (a training
    step, or an inference), ``plan`` ("" for PyTorch's own choice), ``pytorch_us`` and ``plan_us`` of a call, and
    ``saved_us`` in a pass; NaN where nothing was timed. A replay of a CUDA graph is no call. After ``disable`` the
    table is that of what was enabled last. ``UserError`` if nothing was; an empty one where the machine had nothing.
    """
    if program := _active or _prepared:
        return program.gains()
    if not _unable:
        raise UserError("nothing was enabled whose gains are known; call tileseer.torch.enable first")
    _warn_of_nothing()
    return pd.DataFrame(columns=COLUMNS)


def _made(model: Path | str | None, verify: int | None, choices: Path | str | None) -> Program | None:
    """Return what arguments describe; None, after a warning, where it cannot be."""
    global _unable
    if callable(model):
        raise UserError(
            f"model is {shown(model)}; give no network and no function, since all convolutions are switched: "
            "tileseer.torch.enable(), or @tileseer.torch.enabled()"
        )
    for name, path in (("model", model), ("choices", choices)):
        if path is not None and (not isinstance(path, str | Path) or not str(path) or Path(path).is_file()):
            raise UserError(f"{name} is {shown(path)}; give the path of a folder, or None")
    if verify is not None and (isinstance(verify, bool) or not isinstance(verify, Integral) or verify < 0):
        raise UserError(f"verify is {shown(verify)}; give the number of the model's plans that are timed, 0 or more")
    # The folder that was written before means the same choices.
    choices = str(choices).removesuffix("/").removesuffix(".tuned") if choices else None
    folder, path = (Path(os.path.abspath(Path(given).expanduser())) if given else None for given in (model, choices))
    archs = [model_packages.arch_of_model(folder)] if folder else model_packages.installed_archs()
    try:
        _check_machine(archs)
        compiled = extension.load()
    except UserError as error:
        _warn(error)
        _unable = stores.folder(path)
        return None
    return Program(folder, verify, path, compiled)


def _check_machine(archs: Collection[str]) -> None:
    """Refuse a machine on which models of these archs are of no use (``UserError``)."""
    if torch.version.cuda is None or not torch.backends.cudnn.is_available():
        raise UserError(
            "this PyTorch is built without CUDA and cuDNN; install one with them (https://pytorch.org/get-started)"
        )
    if not torch.cuda.device_count():
        raise UserError("PyTorch sees no NVIDIA GPU (nvidia-smi and CUDA_VISIBLE_DEVICES say which there are)")
    extension.check_cudnn()
    model_packages.check_gpus(archs)


def _put(scope: _Scope, program: Program | None) -> None:
    """Enable a program, or nothing, in a scope, which may be a new one."""
    with _lock:
        scope.program = program
        if scope not in _scopes:
            _scopes.append(scope)
        _apply()


def _apply() -> None:
    """Let the kernels do what the last scope says."""
    global _active, _prepared
    program = _scopes[-1].program
    if program and _prepared and program.identity == _prepared.identity:
        program = _prepared
    if _active and program is not _active:
        _active.extension.turn(False)
        _active.save()
    if program:
        if program is not _prepared:
            program.prepare()
            program.extension.use(program.choose, program.begin, ask_for_warm_up, SHAPES_KEPT)
        program.extension.turn(True)
        _prepared = program
    _active = program


def _warn_of_nothing() -> None:
    warnings.warn("tileseer: enable() found nothing to enable here, so there are no choices or gains", stacklevel=3)


def _warn(error: UserError) -> None:
    warnings.warn(f"tileseer: {error}; PyTorch's own choice runs instead", stacklevel=4)


@atexit.register
def _save() -> None:
    if _active:
        _active.save()
