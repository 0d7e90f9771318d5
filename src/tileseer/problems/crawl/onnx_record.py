"""Reads the convolutions of an ONNX model, with the shapes that ONNX's own shape inference finds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from onnx import NodeProto, helper, shape_inference

from tileseer.core.errors import UserError
from tileseer.problems.crawl.observed import Observed

Shape = tuple[int, ...]


def record(path: Path, inputs: Sequence[tuple[str, Shape]], trained: bool) -> tuple[list[Observed], Counter[str]]:
    """Convolutions in the order of the graph, and how many were left out for which reason.

    Padding that differs between the two ends of an axis is done on the image first: the convolution then reads a
    larger image with the smaller of the two pads, as frameworks execute it.
    """
    try:
        model = onnx.load(path, load_external_data=False)
    # onnx has no name of its own for what protobuf raises.
    except Exception as error:
        raise UserError(f"{path}: is no ONNX model that can be read: {error}") from error
    weights = {tensor.name for tensor in model.graph.initializer}
    _give_shapes(model, [value for value in model.graph.input if value.name not in weights], inputs, path)
    try:
        graph = shape_inference.infer_shapes(model, data_prop=True).graph
    except (shape_inference.InferenceError, ValueError) as error:
        raise UserError(f"{path}: the shapes of the model cannot be inferred: {error}") from error
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        shape = value.type.tensor_type.shape
        if all(axis.HasField("dim_value") for axis in shape.dim) and shape.dim:
            shapes.setdefault(value.name, tuple(axis.dim_value for axis in shape.dim))
    found: list[Observed] = []
    left_out: Counter[str] = Counter()
    first = {value.name for value in graph.input}
    for node in graph.node:
        if node.op_type in ("Conv", "ConvTranspose"):
            conv = _observed(node, shapes, trained, node.input[0] not in first)
            if isinstance(conv, str):
                left_out[conv] += 1
            else:
                found.append(conv)
    return found, left_out


def _give_shapes(
    model: onnx.ModelProto, values: Sequence[onnx.ValueInfoProto], inputs: Sequence[tuple[str, Shape]], path: Path
) -> None:
    """Write the shapes that the user gave into the inputs of the graph."""
    by_name = {value.name: value for value in values}
    in_order = list(values)
    for name, shape in inputs:
        value = by_name.get(name) if name else (in_order.pop(0) if in_order else None)
        if value is None:
            names = ", ".join(by_name) or "none"
            raise UserError(
                f"{path}: the model has no input {name!r}" + f" to give a shape to; its inputs are: {names}"
            )
        axes = value.type.tensor_type.shape.dim
        if len(axes) != len(shape):
            raise UserError(f"{path}: input {value.name} has {len(axes)} axes, but {len(shape)} extents are given")
        for axis, extent in zip(axes, shape, strict=True):
            axis.dim_value = extent


def _observed(node: NodeProto, shapes: Mapping[str, Shape], trained: bool, inner: bool) -> Observed | str:
    """Convolution of a node, or why it cannot be read."""
    image, weight = shapes.get(node.input[0]), shapes.get(node.input[1])
    if image is None or weight is None:
        return "the shape is dynamic: give the shapes of the model's inputs with --input"
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    axes = len(weight) - 2
    if axes not in (1, 2, 3):
        return f"a convolution over {axes} axes"
    wrong = _wrong(attributes, axes)
    if wrong:
        return wrong
    transposed = node.op_type == "ConvTranspose"
    groups = attributes.get("group", 1)
    stride = tuple(attributes.get("strides", [1] * axes))
    dilation = tuple(attributes.get("dilations", [1] * axes))
    output_pad = tuple(attributes.get("output_padding", [0] * axes))
    # Of a transposed convolution SAME means its output, which has other formulas.
    same = transposed and attributes.get("auto_pad", b"NOTSET").startswith(b"SAME")
    pads = None if same else _pads(attributes, image[2:], weight[2:], stride, dilation)
    if transposed and (pads is None or attributes.get("output_shape") or any(b != a for b, a in pads)):
        return "a transposed convolution whose padding follows from its output or differs between the ends of an axis"
    if pads is None:
        return f"auto_pad {attributes['auto_pad'].decode()}"
    return Observed(
        layer=node.name or node.output[0],
        batch=image[0],
        groups=groups,
        channels=image[1],
        filters=weight[1] * groups if transposed else weight[0],
        image=tuple(extent + abs(b - a) for extent, (b, a) in zip(image[2:], pads, strict=True)),
        filter=weight[2:],
        stride=stride,
        pad=tuple(min(pair) for pair in pads),
        dilation=dilation,
        output_pad=output_pad,
        transposed=transposed,
        trained=trained,
        input_grad=trained and inner,
    )


def _wrong(attributes: Mapping[str, object], axes: int) -> str:
    """Fault of the attribute that no convolution over ``axes`` axes can have; empty if there is none."""
    for name, count in (("strides", axes), ("dilations", axes), ("output_padding", axes), ("pads", 2 * axes)):
        values = attributes.get(name, [0] * count)
        if not isinstance(values, Sequence) or len(values) != count or not all(isinstance(v, int) for v in values):
            return f"attribute {name} is not {count} whole numbers"
    groups, mode = attributes.get("group", 1), attributes.get("auto_pad", b"")
    if not isinstance(groups, int) or groups < 1:
        return "attribute group is no whole number from 1"
    return "" if isinstance(mode, bytes) else "attribute auto_pad is no word"


def _pads(
    attributes: Mapping[str, object], image: Shape, filters: Shape, stride: Shape, dilation: Shape
) -> list[tuple[int, int]] | None:
    """Padding before and after each axis; None where ``auto_pad`` is not one that we know."""
    mode = attributes.get("auto_pad", b"NOTSET")
    if mode == b"VALID":
        return [(0, 0)] * len(filters)
    if mode in (b"SAME_UPPER", b"SAME_LOWER"):
        pads: list[tuple[int, int]] = []
        for extent, f, s, d in zip(image, filters, stride, dilation, strict=True):
            # As many outputs as ceil(extent / stride).
            total = max(0, (-(-extent // s) - 1) * s + d * (f - 1) + 1 - extent)
            small, large = total // 2, total - total // 2
            pads.append((small, large) if mode == b"SAME_UPPER" else (large, small))
        return pads
    if mode != b"NOTSET":
        return None
    sides = attributes.get("pads") or [0] * (2 * len(filters))
    return list(zip(sides[: len(filters)], sides[len(filters) :], strict=True))  # type: ignore[index]
