"""Reads the convolutions of an ONNX model, with the shapes that ONNX's own shape inference finds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import NodeProto, helper, shape_inference

from tileseer.core.errors import UserError, printed
from tileseer.core.isolation import call_apart
from tileseer.core.reading import read_bytes
from tileseer.problems.crawl.observed import Observed

Shape = tuple[int, ...]


LARGEST_MODEL = 2**31
"""Bytes of a file: protobuf reads no more."""
LARGEST_VALUE = 4096
"""Bytes of a tensor that may be a shape; the content of others is dropped."""


def record_onnx(path: Path, inputs: Sequence[tuple[str, Shape]], trained: bool) -> tuple[list[Observed], Counter[str]]:
    """Return the convolutions in the order of the graph, and how many were left out for which reason.

    Padding that differs between the two ends of an axis is done on the image first: the convolution then reads a
    larger image with the smaller of the two pads, as frameworks execute it.
    """
    content = read_bytes(path, LARGEST_MODEL)
    # ONNX follows a function that calls itself until its stack ends.
    return call_apart(str(path), 2 * len(content), _record, path, content, inputs, trained)


def _record(
    path: Path, content: bytes, inputs: Sequence[tuple[str, Shape]], trained: bool
) -> tuple[list[Observed], Counter[str]]:
    try:
        model = onnx.load_model_from_string(content)
    # onnx has no name of its own for what protobuf raises.
    except Exception as error:
        way = f"give --torch {path.stem}:CALLABLE" if path.suffix == ".py" else "export it again"
        raise UserError(f"{path}: is no ONNX model that can be read: {error}; {way}") from error
    if not model.graph.node:
        raise UserError(f"{path}: is no ONNX model: it has no operators")
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) > LARGEST_VALUE:
            tensor.ClearField("raw_data")
    _give_shapes(model.graph, inputs, path)
    try:
        graph = shape_inference.infer_shapes(model, data_prop=True).graph
    # Its code in C++ has errors of several types, RuntimeError among them.
    except Exception as error:
        raise UserError(f"{path}: the shapes of the model cannot be inferred: {error}") from error
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        shape = value.type.tensor_type.shape
        if all(axis.HasField("dim_value") for axis in shape.dim) and shape.dim:
            shapes.setdefault(value.name, tuple(axis.dim_value for axis in shape.dim))
    observed: list[Observed] = []
    left_out: Counter[str] = Counter()
    first = {value.name for value in graph.input}
    for node in graph.node:
        if node.op_type in ("Conv", "ConvTranspose"):
            try:
                observed.append(_observed(node, shapes, trained, trained and first.isdisjoint(node.input[:1])))
            except _LeftOutError as error:
                left_out[str(error)] += 1
    return observed, left_out


class _LeftOutError(ValueError):
    """Why a convolution cannot be read."""


def _give_shapes(graph: onnx.GraphProto, inputs: Sequence[tuple[str, Shape]], path: Path) -> None:
    """Write the shapes that the user gave into the inputs of the graph."""
    weights = {tensor.name for tensor in graph.initializer}
    by_name = {value.name: value for value in graph.input if value.name not in weights}
    in_order = iter(by_name.values())
    for name, shape in inputs:
        value = by_name.get(name) if name else next(in_order, None)
        if value is None:
            names = ", ".join(by_name) or "none"
            what = f"no input {name!r} to give a shape to" if name else f"fewer than {len(inputs)} inputs"
            raise UserError(f"{path}: the model has {what}; its inputs are: {names}")
        axes = value.type.tensor_type.shape.dim
        if len(axes) != len(shape):
            raise UserError(f"{path}: input {value.name} has {len(axes)} axes, but {len(shape)} extents are given")
        if any(axis.dim_value not in (0, extent) for axis, extent in zip(axes, shape, strict=True)):
            own = "x".join(str(axis.dim_value or axis.dim_param or "?") for axis in axes)
            given = "x".join(map(str, shape))
            raise UserError(
                f"{path}: input {value.name} is {own}, but --input gives {given}; give {own}, or export it anew with "
                "axes that are free"
            )
        for axis, extent in zip(axes, shape, strict=True):
            axis.dim_value = extent


def _observed(node: NodeProto, shapes: Mapping[str, Shape], trained: bool, input_grad: bool) -> Observed:
    if len(node.input) < 2:
        raise _LeftOutError("a convolution without weights")
    image, weight = shapes.get(node.input[0]), shapes.get(node.input[1])
    if image is None or weight is None:
        raise _LeftOutError("the shape is dynamic: give the shapes of the model's inputs with --input")
    axes = len(weight) - 2
    if axes not in (1, 2, 3):
        raise _LeftOutError(f"a convolution over {axes} axes")
    if len(image) != len(weight):
        raise _LeftOutError(f"an image of {len(image)} axes for a weight of {len(weight)}")
    attributes = _attributes(node, axes)
    transposed = node.op_type == "ConvTranspose"
    if image[1] != (channels := weight[0] if transposed else weight[1] * attributes["group"]):
        raise _LeftOutError(f"an image of {image[1]} channels for weights of {channels}")
    pads = _pads(attributes, image[2:], weight[2:], transposed)
    if transposed and (attributes.get("output_shape") or any(before != after for before, after in pads)):
        raise _LeftOutError("a transposed convolution whose padding follows from its output or differs on an axis")
    return Observed(
        layer=printed(node.name or node.output[0]).replace("\n", " "),
        batch=image[0],
        groups=attributes["group"],
        channels=image[1],
        filters=weight[1] * attributes["group"] if transposed else weight[0],
        image=tuple(extent + abs(after - before) for extent, (before, after) in zip(image[2:], pads, strict=True)),
        filter=weight[2:],
        stride=tuple(attributes["strides"]),
        pad=tuple(min(pair) for pair in pads),
        dilation=tuple(attributes["dilations"]),
        output_pad=tuple(attributes["output_padding"]),
        transposed=transposed,
        trained=trained,
        input_grad=input_grad,
    )


def _attributes(node: NodeProto, axes: int) -> dict[str, Any]:
    """Return the attributes of a convolution over ``axes`` axes, each of the type and length of its default."""
    defaults: dict[str, Any] = {"strides": [1] * axes, "dilations": [1] * axes, "output_padding": [0] * axes}
    defaults |= {"pads": [0] * (2 * axes), "group": 1, "auto_pad": b"NOTSET"}
    own = {attribute.name: attribute for attribute in node.attribute if attribute.name in defaults}
    for name, attribute in own.items():
        try:
            value, default = helper.get_attribute_value(attribute), defaults[name]
        except ValueError as error:
            raise _LeftOutError(f"attribute {name} has no value") from error
        values, usual = (one if isinstance(one, list) else [one] for one in (value, default))
        right = type(value) is type(default) and list(map(type, values)) == list(map(type, usual))
        # What is 1 by default is a count or a step, and never less.
        if not right or (usual[0] == 1 and min(values) < 1):
            raise _LeftOutError(f"attribute {name} is none of a convolution over {axes} axes")
        defaults[name] = value
    return defaults


def _pads(attributes: Mapping[str, Any], image: Shape, filters: Shape, transposed: bool) -> list[tuple[int, int]]:
    """Return the padding before and after each axis."""
    mode, pads = attributes["auto_pad"], attributes["pads"]
    if mode in (b"NOTSET", b"VALID"):
        return list(zip(pads[: len(filters)], pads[len(filters) :], strict=True))
    # Of a transposed convolution SAME means its output, which has other formulas.
    if mode not in (b"SAME_UPPER", b"SAME_LOWER") or transposed:
        raise _LeftOutError(f"auto_pad {mode.decode(errors='replace')}")
    axes = zip(image, filters, attributes["strides"], attributes["dilations"], strict=True)
    # As many outputs as ceil(extent / stride).
    totals = [max(0, (-(-extent // s) - 1) * s + d * (f - 1) + 1 - extent) for extent, f, s, d in axes]
    return [(total // 2, total - total // 2) for total in totals]
