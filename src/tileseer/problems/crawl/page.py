"""The page that describes the crawled tables: counts, distributions, licences, and what was left out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import altair as alt
import vl_convert

from tileseer.conv.layers import SPLITS, Layer
from tileseer.conv.operation import VARIANTS
from tileseer.conv.problem import DIMS
from tileseer.core.atomic import write_text
from tileseer.problems.crawl import tables
from tileseer.problems.crawl.tables import NetworkRow
from tileseer.problems.crawl.zoo import Package

PAGE = "networks.md"
FIGURES: tuple[tuple[str, str, Callable[[Mapping[str, int]], int]], ...] = (
    ("batch", "batch size", lambda d: d["N"]),
    ("channels", "input channels a group", lambda d: d["C"] // d["G"]),
    ("filters", "filters a group", lambda d: d["K"] // d["G"]),
    ("pixels", "input pixels, D x H x W", lambda d: d["Di"] * d["Hi"] * d["Wi"]),
)
"""File, axis and value of each distribution."""
KINDS: dict[str, Callable[[Mapping[str, int]], bool]] = {
    "2D": lambda d: (d["Di"], d["Z"]) == (1, 1) and d["Hi"] > 1,
    "3D": lambda d: (d["Di"], d["Z"], d["stride_d"], d["pad_d"]) != (1, 1, 1, 0),
    "1x1 filter": lambda d: d["Z"] * d["Y"] * d["X"] == 1,
    "3x3 or 3x3x3 filter": lambda d: (d["Z"], d["Y"], d["X"]) in ((1, 3, 3), (3, 3, 3)),
    "filter of 5 or more along an axis": lambda d: max(d["Z"], d["Y"], d["X"]) >= 5,
    "rectangular filter, not 1D": lambda d: d["Y"] != d["X"] and d["Hi"] > 1,
    "even filter": lambda d: d["X"] % 2 == 0,
    "grouped, not depthwise": lambda d: 1 < d["G"] != d["C"],
    "depthwise": lambda d: 1 < d["G"] == d["C"],
    "dilated": lambda d: max(d["dilation_d"], d["dilation_h"], d["dilation_w"]) > 1,
    "strided": lambda d: max(d["stride_d"], d["stride_h"], d["stride_w"]) > 1,
    "image not square, not 1D": lambda d: 1 < d["Hi"] != d["Wi"],
    "odd image extent": lambda d: bool(d["Wi"] % 2 or (d["Hi"] > 1 and d["Hi"] % 2)),
    "single-pixel image": lambda d: d["Di"] * d["Hi"] * d["Wi"] == 1,
    "input of 1 to 4 channels": lambda d: d["G"] == 1 and d["C"] <= 4,
    "C/G or K/G no multiple of 8, not depthwise": lambda d: (
        d["G"] != d["C"] and bool(d["C"] // d["G"] % 8 or d["K"] // d["G"] % 8)
    ),
}


def write(
    folder: Path,
    packages: Mapping[str, Package],
    networks: Sequence[NetworkRow],
    layers: Sequence[Layer],
    left_out: Iterable[tuple[str, str, str, int]],
) -> None:
    """Write the page and its figures into ``folder``."""
    for name, axis, value in FIGURES:
        write_text(folder / f"{name}.svg", _figure(axis, value, layers))
    write_text(folder / PAGE, _page(packages, networks, layers, list(left_out)))


def _distinct(layers: Iterable[Layer]) -> list[dict[str, int]]:
    return [dict(zip(DIMS, dims, strict=True)) for dims in sorted({layer.dims for layer in layers})]


def _figure(axis: str, value: Callable[[Mapping[str, int]], int], layers: Sequence[Layer]) -> str:
    """Return a histogram over powers of two of the distinct convolutions, stacked by split, as SVG."""
    counts = Counter((layer_split, value(dims).bit_length() - 1) for layer_split, dims in _by_split(layers))
    rows = [{"from": 2**power, "split": split, "count": n} for (split, power), n in sorted(counts.items())]
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar()
        .encode(
            x=alt.X("from:O", title=f"{axis}, from this to the next power of two", axis=alt.Axis(labelAngle=-45)),
            y=alt.Y("count:Q", title="distinct convolutions"),
            color=alt.Color(
                "split:N",
                sort=list(SPLITS),
                scale=alt.Scale(domain=list(SPLITS), range=["#4c78a8", "#9ecae9", "#f58518"]),
            ),
        )
        .properties(width=420, height=180, background="white")
    )
    return vl_convert.vegalite_to_svg(chart.to_dict()) + "\n"


def _by_split(layers: Iterable[Layer]) -> list[tuple[str, dict[str, int]]]:
    found = sorted({(layer.split, layer.dims) for layer in layers})
    return [(split, dict(zip(DIMS, dims, strict=True))) for split, dims in found]


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return [*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows), ""]


def _page(
    packages: Mapping[str, Package],
    networks: Sequence[NetworkRow],
    layers: Sequence[Layer],
    left_out: Sequence[tuple[str, str, str, int]],
) -> str:
    distinct = _distinct(layers)
    present = {layer.network for layer in layers}
    shown = [row for row in networks if row.network in present]
    lines = [
        "# Layers of real networks",
        "",
        "This page, its figures and its tables are written by one command, which makes an environment of exactly the",
        "packages of [crawl.txt](crawl.txt), runs `tileseer crawl --zoo` in it, and asks git what changed. A second",
        "crawl gave the same bytes in all eight files (7.5 CPU minutes on 2 cores; 1.8 GB of packages):",
        "",
        "    make problems",
        "",
        f"{len(layers):,} rows, {len(distinct):,} distinct convolutions, {len(shown)} networks of "
        f"{len({row.family for row in shown})} families.",
        "",
        *_table(
            ("file", "what it holds"),
            (
                ("[zoo.yaml](zoo.yaml)", "which networks are run, on which inputs: the input of the command"),
                ("[networks.csv](networks.csv)", "one row a network: family, split, task, package and its version"),
                (
                    "[layers.csv](layers.csv)",
                    "one row a distinct convolution of a run: what it is, how often it occurs",
                ),
                ("[left_out.csv](left_out.csv)", "what is not in the table, with the reason"),
            ),
        ),
        *HOW.splitlines(),
        "",
        "## Splits",
        "",
        *_table(
            ("split", "network families", "networks", "distinct convolutions", "layer families"),
            [_split_row(split, shown, layers) for split in SPLITS],
        ),
        *SPLITTING.splitlines(),
        "",
        "## Distributions",
        "",
        *(f"![Distinct convolutions by {axis}]({name}.svg)\n" for name, axis, _ in FIGURES),
        *_table(("kind", "distinct convolutions"), [(k, sum(map(test, distinct))) for k, test in KINDS.items()]),
        *_table(
            ("direction", "distinct convolutions that a run needs in it"),
            [(v, len({e.dims for e in layers if v in e.directions})) for v in VARIANTS],
        ),
        *_table(
            ("layout in the network", "distinct convolutions"),
            [(k, len({e.dims for e in layers if e.layout == k})) for k in sorted({e.layout for e in layers})],
        ),
        "## Sources",
        "",
        "Shapes are facts; no code and no weights of these packages are part of Tileseer, and nothing was downloaded "
        "but\nthe packages themselves.",
        "",
        *_table(
            ("package", "version", "licence", "networks"),
            [
                (p, next(r.version for r in shown if r.package == p), packages[p].licence, n)
                for p, n in sorted(tables.count_by(shown, "package").items())
            ],
        ),
        *_table(("task", "networks"), sorted(tables.count_by(shown, "task").items())),
        "## What is left out",
        "",
        *LEAVING_OUT.splitlines(),
        "",
        *_table(("reason", "runs", "convolutions"), _reasons(left_out)),
        "## Networks",
        "",
        "Distinct convolutions of each network, over all its runs.",
        "",
        *_table(("family", "split", "networks"), _families(shown, layers)),
    ]
    return "\n".join(lines).rstrip() + "\n"


HOW = """\
Each network is made without weights and run on torch's meta device, where tensors have shapes and no values; every
convolution that reaches torch's dispatcher is recorded, whether a module, a function or scripted code asks for it.
`run` says mode, batch size and input. `directions` says what the run needs: inference forward only, training
backward weight too, and backward data except where the input is the image. `occurrences` counts equal convolutions
of the run; the workflow computes each one's share of the run's FLOP from it.

* A **transposed convolution** stands as the convolution that it reverses, with C and K exchanged: its inference needs
  `bwd_data`, its training the other two.
* A **1D convolution** stands as 2D with Hi = Y = 1; `layout` is NCL.
* **Asymmetric padding** is done on the image before the convolution, by the networks themselves: the row is what runs,
  on the padded image (225x225).
* A 3D network's layer whose image and filter are one deep is a 2D problem. A dilation along a filter extent of 1 is 1.
"""
SPLITTING = """\
The hash of a network family's name decides its split, so a new family moves no other. A network with a backbone
of another family counts as that family. A layer that networks of several splits share, at any batch size, belongs
to test before validation before train: test networks stay whole, and nothing of theirs is learnt. The workflow
asserts that no layer family is in two splits.
"""
LEAVING_OUT = """\
Runs that failed have 0 convolutions: the model reads values (a dynamic shape), or does not run on the meta device.
Each network with its reason is in [left_out.csv](left_out.csv). Deformable convolutions, region pooling and box
decoding are no convolutions; detectors' heads run on 100 boxes an image.
"""


def _split_row(split: str, networks: Sequence[NetworkRow], layers: Sequence[Layer]) -> tuple[object, ...]:
    own = [row for row in networks if row.split == split]
    mine = [layer for layer in layers if layer.split == split]
    return (
        split, len({row.family for row in own}), len(own), len({e.dims for e in mine}), len({e.family for e in mine}),
    )  # fmt: skip


def _reasons(left_out: Sequence[tuple[str, str, str, int]]) -> list[tuple[str, int, int]]:
    runs: Counter[str] = Counter()
    convolutions: Counter[str] = Counter()
    for _, _, reason, count in left_out:
        # Whoever wants the text of an exception finds it in the table; its kind is enough to count.
        what = reason if count else f"failed: {reason.partition(':')[0]}" if ":" in reason else reason
        runs[what] += 1
        convolutions[what] += count
    return [(what, runs[what], convolutions[what]) for what in sorted(runs)]


def _families(networks: Sequence[NetworkRow], layers: Sequence[Layer]) -> list[tuple[str, str, str]]:
    own: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for layer in layers:
        own[layer.network].add(layer.dims)
    families: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in networks:
        families[row.family, row.split].append(f"{row.network} {len(own[row.network])}")
    return [(family, split, ", ".join(names)) for (family, split), names in sorted(families.items())]
