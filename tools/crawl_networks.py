"""Write config/problems/networks.csv: the convolutions of real networks, used only to validate.

Each network of ``network_zoo.NETWORKS`` is built without weights and run once per input shape on torch's meta
device; a forward hook on every convolution module records what it was given. Of the distinct layers of a
network at most its quota is kept, spread evenly over the kinds of convolution (filter, stride, dilation,
grouping) and over the network's depth. The result depends on nothing but the package versions: a rerun
gives the same bytes.

Requirements, in an environment of their own (--check and --summary need none). The last line goes
without dependencies, or it would replace the CPU build of torch:
    pip install torch==2.13.0 numpy==2.4.6 diffusers==0.42.1 monai==1.6.1
    pip install pillow parameterized iopath==0.1.10 yacs tabulate termcolor
    pip install --no-deps torchvision==0.28.0 timm==1.0.31 pytorchvideo==0.1.5 fvcore==0.1.5.post20221221
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from network_zoo import Network, Shape
    from torch import Tensor, nn

DEFAULT_TABLE = Path(__file__).resolve().parent.parent / "config" / "problems" / "networks.csv"
MAX_TENSOR_BYTES = 2**31
BF16_BYTES = 2
MAX_SINGLE_PIXEL_LAYERS = 1
"""Squeeze-and-excitation layers (image 1x1) kept per network: they are matrix products in disguise."""


class Conv(NamedTuple):
    """The 19 dimensions of one convolution in the table's column order; C and K are totals over groups."""

    N: int
    G: int
    C: int
    K: int
    Di: int
    Hi: int
    Wi: int
    Z: int
    Y: int
    X: int
    stride_d: int
    stride_h: int
    stride_w: int
    pad_d: int
    pad_h: int
    pad_w: int
    dilation_d: int
    dilation_h: int
    dilation_w: int

    @property
    def image(self) -> tuple[int, int, int]:
        """Input extents."""
        return self[4:7]

    @property
    def filter(self) -> tuple[int, int, int]:
        """Filter extents."""
        return self[7:10]

    @property
    def stride(self) -> tuple[int, int, int]:
        """Strides."""
        return self[10:13]

    @property
    def pad(self) -> tuple[int, int, int]:
        """Pads on each side of an axis."""
        return self[13:16]

    @property
    def dilation(self) -> tuple[int, int, int]:
        """Dilations."""
        return self[16:19]

    @property
    def output(self) -> tuple[int, ...]:
        """Output extents: floor((i + 2 p - d (f - 1) - 1) / s) + 1 per axis."""
        axes = zip(self.image, self.filter, self.stride, self.pad, self.dilation, strict=True)
        return tuple((i + 2 * p - d * (f - 1) - 1) // s + 1 for i, f, s, p, d in axes)

    @property
    def layer(self) -> tuple[int, ...]:
        """The dimensions less the batch size."""
        return self[1:]

    @property
    def is_3d(self) -> bool:
        """Whether some depth field differs from a 2D convolution's."""
        return (self.Di, self.Z, self.stride_d, self.dilation_d, self.pad_d) != (1, 1, 1, 1, 0)

    @property
    def is_depthwise(self) -> bool:
        """One input channel a group; K may be a multiple of C."""
        return self.G > 1 and self.G == self.C

    def fault(self) -> str:
        """Return why this is no usable problem in all three directions, or an empty string."""
        if min(self) < 0 or min(*self[:13], *self.dilation) < 1:
            return "an extent, stride or dilation is below 1, or a pad below 0"
        if self.C % self.G or self.K % self.G:
            return f"C = {self.C} and K = {self.K} are not both multiples of G = {self.G}"
        if min(self.output) < 1:
            return f"output extents {self.output} are not all positive"
        axes = zip(self.filter, self.pad, self.dilation, strict=True)
        if any(p > d * (f - 1) for f, p, d in axes):
            return "a pad exceeds the dilated filter's reach, so some outputs see padding only"
        if any(d > 1 for f, d in zip(self.filter, self.dilation, strict=True) if f == 1):
            return "a filter extent of 1 has a dilation above 1, which is the same problem as dilation 1"
        largest = BF16_BYTES * max(
            self.N * self.C * product(self.image),
            self.K * (self.C // self.G) * product(self.filter),
            self.N * self.K * product(self.output),
        )
        return f"a tensor has {largest} bytes in bf16, 2 GiB or more" if largest >= MAX_TENSOR_BYTES else ""


class Row(NamedTuple):
    """One line of the table."""

    network: str
    layer: str
    conv: Conv


COLUMNS = ("network", "layer", *Conv._fields)


def product(extents: Iterable[int]) -> int:
    """Return the product of three extents."""
    d, h, w = extents
    return d * h * w


def read_conv(module: nn.Module, given: Sequence[int], returned: Sequence[int]) -> Conv | str:
    """Return the convolution ``module`` did, or why it cannot stand in the table.

    ``given`` and ``returned`` are the shapes, N x channels x [D] x H x W, of its input and its output.
    """
    axes = len(given) - 2

    def three(values: Sequence[int], absent: int) -> tuple[int, ...]:
        return (absent,) * (3 - axes) + tuple(values)

    if module.padding_mode != "zeros":
        return f"padding mode {module.padding_mode}"
    pads: Sequence[int] | str = module.padding
    if isinstance(pads, str):
        reach = [d * (f - 1) for f, d in zip(module.kernel_size, module.dilation, strict=True)]
        if pads == "same" and any(r % 2 for r in reach):
            return "asymmetric padding 'same'"
        pads = [r // 2 for r in reach] if pads == "same" else [0] * axes
    dilation = [d if f > 1 else 1 for f, d in zip(module.kernel_size, module.dilation, strict=True)]
    conv = Conv(
        *(given[0], module.groups, given[1], module.out_channels),
        *three(given[2:], 1),
        *three(module.kernel_size, 1),
        *three(module.stride, 1),
        *three(pads, 0),
        *three(dilation, 1),
    )
    if conv.output != three(returned[2:], 1):
        return "padding done inside the module"
    return conv.fault() or conv


def record(network: Network, shape: Shape, skipped: Counter[str]) -> list[tuple[str, Conv]]:
    """Run ``network`` on ``shape``; return name and convolution of each layer, in order of execution."""
    import torch
    from torch import nn

    found: list[tuple[str, Conv]] = []

    def hook_for(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            conv = read_conv(module, tuple(inputs[0].shape), tuple(output.shape))
            if isinstance(conv, str):
                skipped[f"{network.name}: {conv}"] += 1
            else:
                found.append((name, conv))

        return hook

    def count_transposed(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        skipped[f"{network.name}: transposed convolution"] += 1

    with torch.device("meta"), torch.no_grad():
        model = network.build().to("meta").train(network.train)
        for name, module in model.named_modules():
            if isinstance(module, nn.Conv2d | nn.Conv3d):
                module.register_forward_hook(hook_for(name))
            elif isinstance(module, nn.ConvTranspose2d | nn.ConvTranspose3d):
                module.register_forward_hook(count_transposed)
        network.feed(model, shape)
    return found


def kind(conv: Conv) -> tuple[object, ...]:
    """Return what makes two layers of a network alike, apart from channels and image."""
    grouping = "depthwise" if conv.is_depthwise else "grouped" if conv.G > 1 else "dense"
    return (conv.is_3d, product(conv.image) == 1, grouping, conv.filter, conv.stride, conv.dilation)


def share(quota: int, sizes: Sequence[int]) -> list[int]:
    """Deal ``quota`` one by one over strata of ``sizes``, in turn, until it or they are exhausted."""
    dealt = [0] * len(sizes)
    while quota:
        hungry = [i for i, size in enumerate(sizes) if dealt[i] < size][:quota]
        if not hungry:
            break
        for i in hungry:
            dealt[i] += 1
        quota -= len(hungry)
    return dealt


def spread(items: Sequence[Row], count: int) -> list[Row]:
    """Return ``count`` of ``items``, evenly spaced from first to last; the middle one if ``count`` is 1."""
    if count == 1:
        return [items[len(items) // 2]]
    return [items[i * (len(items) - 1) // (count - 1)] for i in range(count)]


def select(network: Network, runs: Sequence[Sequence[tuple[str, Conv]]], taken: set[tuple[int, ...]]) -> list[Row]:
    """Return the rows of one network; ``taken``, the table's layers (less batch size) so far, is extended.

    Successive layers come from successive runs: batch sizes and images mix without repeating a layer.
    """
    strata: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    seen = set(taken)
    for position in range(max(map(len, runs))):
        run = runs[position % len(runs)]
        if position < len(run):
            name, conv = run[position]
            if conv.layer not in seen:
                seen.add(conv.layer)
                strata[kind(conv)].append(Row(network.name, name, conv))
    sizes = [
        min(len(rows), MAX_SINGLE_PIXEL_LAYERS) if product(rows[0].conv.image) == 1 else len(rows)
        for rows in strata.values()
    ]
    chosen = [
        row
        for rows, count in zip(strata.values(), share(network.quota, sizes), strict=True)
        if count
        for row in spread(rows, count)
    ]
    taken.update(row.conv.layer for row in chosen)
    return chosen


def crawl() -> tuple[list[Row], Counter[str]]:
    """Return the sorted rows of all networks, and how many layers each network lost for which reason."""
    try:
        from network_zoo import NETWORKS
    except ImportError as error:
        sys.exit(f"{error}; install the packages that --help lists")

    rows: list[Row] = []
    skipped: Counter[str] = Counter()
    taken: set[tuple[int, ...]] = set()
    for network in NETWORKS:
        chosen = select(network, [record(network, shape, skipped) for shape in network.runs], taken)
        print(f"{network.name}: {len(chosen)} rows", file=sys.stderr)
        rows += chosen
    return sorted(rows), skipped


def fault_of(rows: Sequence[Row]) -> str:
    """Return what is wrong with the table: an invalid row, a repeated layer, the order; or an empty string."""
    if not rows:
        return "the table has no rows"
    first: dict[tuple[int, ...], Row] = {}
    for row in rows:
        where = f"{row.network} {row.layer}"
        if fault := row.conv.fault():
            return f"{where}: {fault}"
        twin = first.setdefault(row.conv.layer, row)
        if twin is not row:
            return f"{where}: the same layer, but for the batch size, as {twin.network} {twin.layer}"
    for before, after in pairwise(rows):
        if before > after:
            return f"{after.network} {after.layer}: stands after {before.network} {before.layer}; sort the rows"
    return ""


def check(rows: Sequence[Row], path: Path) -> None:
    """Exit with one message when ``rows`` are not fit to stand in the table at ``path``."""
    if fault := fault_of(rows):
        sys.exit(f"{path}: {fault}")


def to_text(rows: Iterable[Row]) -> str:
    """Return the table as CSV text with line feeds."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows((row.network, row.layer, *row.conv) for row in rows)
    return buffer.getvalue()


def read_table(path: Path) -> list[Row]:
    """Return the rows of the CSV at ``path``; exit with one message when it is missing or malformed."""
    try:
        lines = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"))))
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")
    if not lines or tuple(lines[0]) != COLUMNS:
        sys.exit(f"{path}: the first line is not {','.join(COLUMNS)}")
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        dims = line[2:]
        if len(dims) != len(Conv._fields) or not all(d.isdecimal() for d in dims):
            sys.exit(f"{path}: line {number} does not hold {len(Conv._fields)} whole numbers after the layer")
        rows.append(Row(line[0], line[1], Conv(*map(int, dims))))
    return rows


def write_atomically(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` in one step, so that a reader never sees half a table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8", newline="\n")
    os.replace(part, path)


KINDS: dict[str, Callable[[Conv], bool]] = {
    "2D": lambda c: not c.is_3d,
    "3D": lambda c: c.is_3d,
    "1x1 filter": lambda c: product(c.filter) == 1,
    "3x3 or 3x3x3 filter": lambda c: c.filter in ((1, 3, 3), (3, 3, 3)) and c.is_3d == (c.Z == 3),
    "filter of 5 or more along an axis": lambda c: max(c.filter) >= 5,
    "rectangular filter": lambda c: c.Y != c.X or (c.is_3d and c.Z != c.Y),
    "even filter": lambda c: c.X % 2 == 0,
    "grouped, not depthwise": lambda c: c.G > 1 and not c.is_depthwise,
    "depthwise": lambda c: c.is_depthwise,
    "dilated": lambda c: max(c.dilation) > 1,
    "strided": lambda c: max(c.stride) > 1,
    "image not square (H != W)": lambda c: c.Hi != c.Wi,
    "odd image extent (H or W)": lambda c: bool(c.Hi % 2 or c.Wi % 2),
    "single-pixel image": lambda c: product(c.image) == 1,
    "input with 1 to 4 channels": lambda c: c.G == 1 and c.C <= 4,
    "odd K": lambda c: bool(c.K % 2),
    "C/G or K/G not a multiple of 8, not depthwise": lambda c: (
        not c.is_depthwise and bool(c.C // c.G % 8 or c.K // c.G % 8)
    ),
    "pad other than (dilated filter - 1) / 2": lambda c: any(
        2 * p != d * (f - 1) for f, p, d in zip(c.filter, c.pad, c.dilation, strict=True)
    ),
}


def summary(rows: Sequence[Row]) -> str:
    """Return the counts by network, kind and batch size as Markdown tables."""
    lines = [f"{len(rows)} problems of {len({row.network for row in rows})} networks.", ""]
    lines += ["| kind | problems |", "|---|---|"]
    lines += [f"| {name} | {sum(test(row.conv) for row in rows)} |" for name, test in KINDS.items()]
    lines += ["", "| batch size | problems |", "|---|---|"]
    lines += [f"| {n} | {count} |" for n, count in sorted(Counter(row.conv.N for row in rows).items())]
    lines += ["", "| network | problems | of them 3D |", "|---|---|---|"]
    for network in sorted({row.network for row in rows}):
        own = [row.conv for row in rows if row.network == network]
        lines.append(f"| {network} | {len(own)} | {sum(c.is_3d for c in own)} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Crawl, check and write; or only check or summarise an existing table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--table", type=Path, default=DEFAULT_TABLE, help="the CSV (default: config/problems/networks.csv)"
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="only check the CSV")
    mode.add_argument("--summary", action="store_true", help="only print the counts of the CSV, as Markdown")
    options = parser.parse_args(arguments)
    if options.check or options.summary:
        rows = read_table(options.table)
        check(rows, options.table)
        print(summary(rows) if options.summary else f"{options.table}: {len(rows)} problems, all valid")
        return
    rows, skipped = crawl()
    check(rows, options.table)
    write_atomically(options.table, to_text(rows))
    for reason, count in sorted(skipped.items()):
        print(f"left out, {reason}: {count}", file=sys.stderr)
    print(f"{options.table}: {len(rows)} problems")


if __name__ == "__main__":
    main()
