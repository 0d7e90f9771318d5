"""The page that describes the crawled tables: counts, distributions, licences, and what was left out."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import altair as alt
import vl_convert

from tileseer.core import templates
from tileseer.core.atomic import write_text
from tileseer.facts.operations import VARIANTS
from tileseer.problems.layers import LAYER_SPLITS, Layer
from tileseer.problems.problem import DIMS
from zoo.entries import Package
from zoo.tables import LeftOut, NetworkRow

PAGE = "networks.md"
Value = Callable[[Mapping[str, int]], int]
FIGURES: tuple[tuple[str, str, Value], ...] = (
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
    left_out: Iterable[LeftOut],
) -> None:
    """Write the page and its figures into ``folder``."""
    by_split = [(split, _named(dims)) for split, dims in sorted({(layer.split, layer.dims) for layer in layers})]
    for name, axis, value in FIGURES:
        write_text(folder / f"{name}.svg", _figure(axis, value, by_split))
    write_text(folder / PAGE, _page(packages, networks, layers, left_out))


def _named(dims: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(DIMS, dims, strict=True))


def _figure(axis: str, value: Value, by_split: Iterable[tuple[str, dict[str, int]]]) -> str:
    """Histogram over powers of two of the distinct convolutions, stacked by split, as SVG."""
    counts = Counter((split, value(dims).bit_length() - 1) for split, dims in by_split)
    rows = [{"from": 2**power, "split": split, "count": n} for (split, power), n in sorted(counts.items())]
    colours = alt.Scale(domain=list(LAYER_SPLITS), range=["#4c78a8", "#9ecae9", "#f58518"])
    title = f"{axis}, from this to the next power of two"
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar()
        .encode(
            x=alt.X("from:O", title=title, axis=alt.Axis(labelAngle=-45)),
            y=alt.Y("count:Q", title="distinct convolutions"),
            color=alt.Color("split:N", sort=list(LAYER_SPLITS), scale=colours),
        )
        .properties(width=420, height=180, background="white")
    )
    return vl_convert.vegalite_to_svg(chart.to_dict()) + "\n"


def _page(
    packages: Mapping[str, Package],
    networks: Sequence[NetworkRow],
    layers: Sequence[Layer],
    left_out: Iterable[LeftOut],
) -> str:
    dims_of: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for layer in layers:
        dims_of[layer.network].add(layer.dims)
    distinct = [_named(dims) for dims in set().union(*dims_of.values())]
    shown = [row for row in networks if row.network in dims_of]
    families: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in shown:
        families[row.family, row.split].append(f"{row.network} {len(dims_of[row.network])}")
    used = sorted(Counter((row.package, row.version) for row in shown).items())
    return templates.fill_template(
        Path(__file__).with_name(f"{PAGE}.j2"),
        rows=len(layers),
        distinct=len(distinct),
        networks=len(shown),
        splits=[_split_row(split, shown, layers) for split in LAYER_SPLITS],
        figures=[(name, axis) for name, axis, _ in FIGURES],
        kinds=[(kind, sum(map(test, distinct))) for kind, test in KINDS.items()],
        directions=[(v, _distinct(e for e in layers if v in e.directions)) for v in VARIANTS],
        layouts=[(k, _distinct(e for e in layers if e.layout == k)) for k in sorted({e.layout for e in layers})],
        packages=[(package, version, packages[package].licence, n) for (package, version), n in used],
        tasks=sorted(Counter(row.task for row in shown).items()),
        reasons=_reasons(left_out),
        families=[(family, split, ", ".join(names)) for (family, split), names in sorted(families.items())],
    )


def _distinct(layers: Iterable[Layer]) -> int:
    return len({layer.dims for layer in layers})


def _split_row(split: str, networks: Sequence[NetworkRow], layers: Sequence[Layer]) -> tuple[object, ...]:
    own = [row for row in networks if row.split == split]
    mine = [layer for layer in layers if layer.split == split]
    return split, len({row.family for row in own}), len(own), _distinct(mine), len({layer.family for layer in mine})


def _reasons(left_out: Iterable[LeftOut]) -> list[tuple[str, int, int]]:
    runs: Counter[str] = Counter()
    convolutions: Counter[str] = Counter()
    for _, _, reason, count in left_out:
        # Whoever wants the text of an exception finds it in the table; its kind is enough to count.
        what = reason if count else f"failed: {reason.partition(':')[0]}" if ":" in reason else reason
        runs[what] += 1
        convolutions[what] += count
    return [(what, runs[what], convolutions[what]) for what in sorted(runs)]
