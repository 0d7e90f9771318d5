"""Finds the convolutions of one model: what a callable makes with torch, or an ONNX file."""

import importlib
import inspect
import os
import re
import sys
import types
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from tileseer.core.errors import OF_FOREIGN_CODE, UserError, is_it, mistakes_of, said_by, shown
from tileseer.core.places import install
from tileseer.problems.crawl.observed import tabulate_layers
from tileseer.problems.layers import Layer

_INPUT = re.compile(r"(?:([A-Za-z_][\w.:/]*)=)?([0-9]{1,9}(?:x[0-9]{1,9})*)")
INSTALL = f"install it with: {install('crawl')}"


def parse_input(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the name (empty if there is none) and shape of an input such as ``8x3x224x224`` or ``mask=8x224``."""
    match = _INPUT.fullmatch(text)
    shape = tuple(int(extent) for extent in match[2].split("x")) if match else ()
    if not match or 0 in shape:
        raise UserError(f"--input: {shown(text)} is no shape such as 8x3x224x224, or NAME=8x3x224x224")
    return match[1] or "", shape


def torch_layers(
    target: str, inputs: list[str], trained: bool, network: str | None
) -> tuple[list[Layer], Counter[str]]:
    """Return the layers of the model that ``module:callable`` makes, and how many were left out for which reason.

    The model is made and run on torch's meta device: it needs no weights, and no memory for them.
    """
    module_name, _, attribute = target.partition(":")
    if target.endswith(".onnx"):
        raise UserError(f"--torch: {shown(target)} is a file of ONNX; write --onnx {target}")
    if not module_name or not attribute:
        raise UserError(f"--torch: {shown(target)} must be MODULE:CALLABLE, for example torchvision.models:resnet50")
    if "/" in module_name or module_name.endswith(".py"):
        file = Path(module_name.removesuffix(".py"))
        there = f"go to the folder {file.parent}, and " if file.parent != Path() else ""
        raise UserError(f"--torch: {shown(target)}: a module is no path: {there}write {file.name}:{attribute}")
    if "(" in attribute:
        raise UserError(f"--torch: {shown(target)}: name a function without arguments that returns {attribute}")
    if not inputs:
        raise UserError("--torch: describe the model's input, for example --input 8x3x224x224")
    shapes = [parse_input(text) for text in inputs]
    try:
        import torch

        from tileseer.problems.crawl import torch_record
    except ImportError as error:
        raise UserError(f"--torch needs torch ({error}); {INSTALL}") from error
    positional = [shape for name, shape in shapes if not name]
    named = {name: shape for name, shape in shapes if name}

    def feed(model: Any) -> object:
        own = (each.dtype for each in model.parameters() if each.is_floating_point())
        empty = partial(torch.empty, dtype=next(own, torch.float32))
        return model(*map(empty, positional), **{name: empty(shape) for name, shape in named.items()})

    given = f"with --input {' --input '.join(inputs)} (N x C x H x W), floating point without values"
    others = "for others, name a function whose module makes them itself, or export it for --onnx"
    # What a network prints is not the answer of this program, nor are its own arguments those of this one.
    with redirect_stdout(sys.stderr), _arguments_of(module_name):
        make = _callable(target, module_name, attribute)
        with mistakes_of(f"--torch {target}: calling it without arguments, on the meta device (leave .cuda() out)"):
            model = torch_record.build_model(make)
            if not isinstance(model, torch.nn.Module):
                raise UserError(f"--torch {target}: returned {shown(model)}; name what returns a torch.nn.Module")
            _check_inputs(target, model, positional, named)
        with mistakes_of(f"--torch {target}: running it {given} ({others})"):
            observed = torch_record.record_torch(model, feed, trained)
    return tabulate_layers(network or attribute.rpartition(".")[2], _run(inputs, trained), observed)


@contextmanager
def _arguments_of(module_name: str) -> Iterator[None]:
    """Let the code of a user, which may read the arguments of a program, find none."""
    before, sys.argv = sys.argv, [module_name]
    try:
        yield
    finally:
        sys.argv = before


def _check_inputs(target: str, model: Any, positional: Sequence[object], named: Mapping[str, object]) -> None:
    """Raise a ``UserError`` where a model takes other inputs than these."""
    try:
        signature = inspect.signature(model.forward)
    except ValueError:
        return
    try:
        signature.bind(*positional, **named)
    except TypeError as error:
        raise UserError(
            f"--torch {target}: forward{signature}: {error}; give an --input for each in this order, or NAME=SHAPE"
        ) from error


def _callable(target: str, module_name: str, attribute: str) -> Any:
    """Return the callable, looked for in the current folder too, as ``python -m`` would."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        value: Any = _module(module_name)
    except OF_FOREIGN_CODE as error:
        name = error.name if isinstance(error, ModuleNotFoundError) else None
        advice = f"; go to the folder that has it, or install it: pip install {name}" if name else ""
        said = f"importing {module_name}: {said_by(error)}{advice}"
        raise UserError(f"--torch {target}: {said}") from error
    try:
        value = attrgetter(attribute)(value)
    except AttributeError as error:
        near = is_it(attribute, vars(sys.modules[module_name]))
        raise UserError(f"--torch {target}: {module_name} has no {attribute}{near}") from error
    if hasattr(value, "named_modules") and not isinstance(value, type):
        raise UserError(f"--torch {target}: {attribute} is a model; name a callable without arguments that makes it")
    if not callable(value):
        raise UserError(f"--torch {target}: {attribute} is not a callable that returns a model")
    with suppress(ValueError):  # of a callable in C, nothing is known
        needed = [
            each.name
            for each in inspect.signature(value).parameters.values()
            if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        ]
        if needed:
            raise UserError(
                f"--torch {target}: {attribute} needs {', '.join(needed)}; name a function without arguments that "
                f"returns {attribute}({', '.join(f'{name}=...' for name in needed)})"
            )
    return value


def do_without_operators_of_torchvision() -> None:
    """Let torchvision be imported beside a torch that it was not compiled for.

    Its operators are missing then, and registering their shapes fails. No convolution needs them.
    """
    name = "torchvision._meta_registrations"
    sys.modules.setdefault(name, types.ModuleType(name))


def _module(name: str) -> types.ModuleType:
    """Import a module; if that fails for want of torchvision's operators, once more without them."""
    try:
        return importlib.import_module(name)
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    do_without_operators_of_torchvision()
    return importlib.import_module(name)


def onnx_layers(path: Path, inputs: list[str], trained: bool, network: str | None) -> tuple[list[Layer], Counter[str]]:
    """Return the layers of an ONNX model, and how many were left out for which reason.

    ``inputs`` give shapes to inputs with dynamic axes; without a name, to the graph's inputs in their order.
    """
    shapes = [parse_input(text) for text in inputs]
    if path.suffix in (".pt", ".pth"):
        raise UserError(
            f"--onnx: {path} is a file of PyTorch; export it, or name what makes it: --torch MODULE:CALLABLE"
        )
    try:
        from tileseer.problems.crawl import onnx_record
    except ImportError as error:
        raise UserError(f"--onnx needs the package onnx ({error}); {INSTALL}") from error
    observed, left_out = onnx_record.record_onnx(path, shapes, trained)
    layers, more = tabulate_layers(network or path.stem, _run(inputs, trained), observed)
    return layers, left_out + more


def _run(inputs: list[str], trained: bool) -> str:
    return " ".join(["train" if trained else "infer", *inputs])
