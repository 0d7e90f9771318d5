"""Which plan of cuDNN a convolution runs: chosen at its first call by a published model, and kept."""

from __future__ import annotations

import functools
import hashlib
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tileseer.config.operations import VARIANTS
from tileseer.core import atomic, documents, locks
from tileseer.core.errors import UserError
from tileseer.kernels.cudnn.engines import RUN_WORKSPACE_BYTES
from tileseer.kernels.cudnn.library import CUDNN
from tileseer.kernels.libraries import library_of_arch
from tileseer.learn import model_files
from tileseer.learn.model_files import Index
from tileseer.measure.device import DeviceKind
from tileseer.problems.problem import DIMS, Problem
from tileseer.serve import tuned
from tileseer.serve.selector import NO_CANDIDATE, Selector
from tileseer.torch.timing import fastest_in_turns

NAMES_OF_DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16"}
HEADER = ("operation", "library", "device", *DIMS, "plan")
PYTORCH = ""
"""In the place of a plan: PyTorch's own choice."""
FALLBACKS = 4
"""So many of cuDNN's first plans are tried where the pick cannot be built."""

MEASURED: DeviceKind = "measured"

_PLANS: list[Plans] = []


class Plans:
    """The plans of one published model for all shapes that were called, on all devices.

    ``verify``: at the first call of a shape, time cuDNN's first plan and the best of so many, and remember the fastest
    in the file of tuned choices beside the model; 0: the model alone decides. What ``save`` wrote to ``file``, by
    default beside the model, is read first: the next process makes the same choices without asking cuDNN or the model.
    """

    def __init__(self, model: Path | str, verify: int = 0, file: Path | str | None = None) -> None:
        self.model, self.verify = Path(model), verify
        self.index = check_cudnn(self.model, model_files.parse_index(self.model))
        self.file = Path(file) if file else self.model.with_name(f"{self.model.name}.plans.tsv")
        self.number = len(_PLANS)
        _PLANS.append(self)
        self._library = ""
        self._lock = threading.RLock()
        self._selectors: dict[tuple[str, str], Selector] = {}
        self._warned: set[str] = set()
        identity = (self.model / model_files.INDEX).read_bytes() + (b"verified" if verify else b"")
        self._identity = hashlib.sha256(identity).hexdigest()[:16]
        self.chosen = self._read()
        """Plan by operation, library, device and the 19 dimensions."""

    def activate(self, operators: Any) -> None:
        """Let the compiled operators ask here."""
        self._library = f"cudnn {operators.version()}"
        operators.set_chooser(_choose)

    def save(self) -> Path:
        """Write the plans of all shapes to the file, with those that others saved since; return its path."""
        with self._lock, locks.hold_folder(self.file.parent):
            self.chosen = self._read() | self.chosen
            rows = [f"# model {self._identity}", "\t".join(HEADER)]
            rows += ["\t".join(map(str, (*key[:3], *key[3], plan))) for key, plan in sorted(self.chosen.items())]
            atomic.write_text(self.file, "".join(f"{row}\n" for row in rows))
        return self.file

    def choose(self, shape: Any, operands: Sequence[torch.Tensor]) -> str:
        """Name of the plan of a new shape, which is built then, or ``PYTORCH``; ``operands`` are x, w and y."""
        with self._lock:
            x = operands[0]
            operation = f"{VARIANTS[shape.direction]}_{NAMES_OF_DTYPES[x.dtype]}"
            try:
                problem = problem_of(shape, NAMES_OF_DTYPES[x.dtype])
            except UserError as error:
                return self._leave(str(error))
            device = torch.cuda.get_device_name(x.device)
            key = operation, self._library, device, problem.dims
            if key in self.chosen:
                return self._built(shape, self.chosen[key], self.chosen[key])
            if reason := self._unsupported(operation, x.device):
                return self._leave(reason)
            plan = self.chosen[key] = self._pick(shape, problem, operation, device, operands)
            return plan or self._leave(
                f"{self.model} has none of the plans that cuDNN offers for some shapes of {operation}"
            )

    def _pick(self, shape: Any, problem: Problem, operation: str, device: str, operands: Sequence[torch.Tensor]) -> str:
        selector = self._selector(operation, device)
        offered = shape.offered()
        measured = self._measured_plans(operation, device, problem.ndim)
        # The model does not cover a first plan that was never measured, or never right.
        if not offered or offered[0] not in measured:
            return PYTORCH
        choice = selector.tuned(problem)
        if choice and (plan := self._built(shape, choice.candidate.partition(f"_{problem.ndim}d_")[2])):
            return plan
        if self.verify:
            rows = selector.shortlist(problem, self.verify - 1, offered, self._library)
            names = [row["kernel"].partition(f"_{problem.ndim}d_")[2] for row in rows]
            names = [name for name in dict.fromkeys([offered[0], *names]) if self._built(shape, name, offered[0])]
            if names:
                return self._verified(shape, problem, names, operation, device, operands)
        row = selector.choose(problem, offered, self._library)
        first = [] if row == NO_CANDIDATE else [selector.kernels[row]]
        names = [name.partition(f"_{problem.ndim}d_")[2] for name in first] + offered[:FALLBACKS]
        return next((name for name in names if name in measured and self._built(shape, name, offered[0])), PYTORCH)

    def _verified(
        self, shape: Any, problem: Problem, names: list[str], operation: str, device: str,
        operands: Sequence[torch.Tensor],
    ) -> str:  # fmt: skip
        """The fastest of ``names``, timed in turns, remembered beside the model."""
        if len(names) == 1:
            return names[0]
        best, milliseconds = fastest_in_turns(shape, names, operands)
        selector = self._selector(operation, device)
        candidate = next(name for name in selector.candidates if name.endswith(f"_{problem.ndim}d_{best}"))
        row = tuned.Choice(problem.dims, candidate, milliseconds, len(names), device, MEASURED)
        try:
            tuned.remember(tuned.tuned_path(self.model, operation), [row])
        except (OSError, UserError) as error:
            self._warn(f"the choice cannot be remembered ({error})")
        return best

    def _built(self, shape: Any, plan: str, own: str = "") -> str:
        """The plan, or ``PYTORCH`` where cuDNN cannot build it or it needs too much workspace."""
        try:
            needed = shape.build(plan) if plan else 0
        except RuntimeError:
            return PYTORCH
        return plan if plan == own or needed <= RUN_WORKSPACE_BYTES else PYTORCH

    @functools.cache  # noqa: B019 - plans live as long as the process
    def _measured_plans(self, operation: str, device: str, ndim: int) -> frozenset[str]:
        """CuDNN's names of the plans that the model has."""
        names = (kernel.partition(f"_{ndim}d_")[2] for kernel in self._selector(operation, device).kernels)
        return frozenset(name for name in names if name)

    @functools.cache  # noqa: B019
    def _library_of(self, operation: str) -> str:
        """The library that a model was measured with, and its version."""
        spec = self.model / self.index.operations[operation].folder / model_files.SPEC
        return str(documents.parse_json(spec.read_bytes(), spec).get("library"))

    def _selector(self, operation: str, device: str) -> Selector:
        key = operation, device
        if key not in self._selectors:
            self._selectors[key] = Selector.read(self.model, operation, device=device)
        return self._selectors[key]

    def _unsupported(self, operation: str, device: torch.device) -> str:
        """Why the model does not cover an operation on a device, or an empty string."""
        major, minor = torch.cuda.get_device_capability(device)
        if not self.index.arch.startswith(f"sm_{major}{minor}_"):
            return f"the models of {self.model} are for {self.index.arch}, and this GPU is sm_{major}{minor}"
        if operation not in self.index.operations:
            return f"{self.model} has no model of {operation}"
        measured = self._library_of(operation)
        return "" if measured == self._library else f"{self.model} is for {measured}, and this is {self._library}"

    def _leave(self, reason: str) -> str:
        self._warn(f"{reason}; PyTorch's own choice runs instead")
        return PYTORCH

    def _warn(self, text: str) -> None:
        """Once per text."""
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(f"tileseer: {text}", stacklevel=2)

    def _read(self) -> dict[tuple[Any, ...], str]:
        """The plans of the file: none without it, and with a warning where it is damaged or another model wrote it."""
        try:
            first, *lines = self.file.read_text(encoding="utf-8").splitlines()
            header, *rows = [tuple(line.split("\t")) for line in lines]
            if (first, header) == (f"# model {self._identity}", HEADER):
                return {(*row[:3], tuple(map(int, row[3:-1]))): row[len(HEADER) - 1] for row in rows}
            reason = "it is of another model, or of another verify"
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, IndexError) as error:
            reason = str(error)
        self._warn(f"{self.file} is not used ({reason}); plans are chosen anew")
        return {}


def check_cudnn(models: Path, index: Index) -> Index:
    """The index of a model directory; ``UserError`` where its models are not of cuDNN's plans."""
    if library_of_arch(index.arch) is not CUDNN:
        raise UserError(f"{models}: its models are of {index.arch}, not of cuDNN's plans, such as sm_90_cudnn")
    return index


def _choose(number: int, shape: Any, *operands: torch.Tensor) -> str:
    return _PLANS[number].choose(shape, operands)


def problem_of(shape: Any, dtype: str) -> Problem:
    """The problem of the operators' ``shape``; ``UserError`` where it is none."""
    absent = 3 - shape.ndim
    image, filters = shape.x[2 : 2 + shape.ndim], shape.w[2 : 2 + shape.ndim]
    ones, zeros = [1] * absent, [0] * absent
    # A filter extent of 1 reads the same pixels whatever its dilation: one problem, one key.
    dilation = [d if f > 1 else 1 for d, f in zip(shape.dilation, filters, strict=False)]
    dims = [shape.x[0], shape.x[1], shape.w[0], shape.groups, *ones, *image, *ones, *filters]
    dims += [*ones, *shape.stride[: shape.ndim], *zeros, *shape.padding[: shape.ndim], *ones, *dilation]
    problem = Problem.from_dims(VARIANTS[shape.direction], dtype, **dict(zip(DIMS, dims, strict=True)))
    if problem.ndim != shape.ndim:
        raise UserError("a 3D convolution without depth")
    return problem
