"""The rule sets ``profiler`` and ``tests``: kernels made of the instance files of a Composable Kernel checkout.

A line is ``CLASS<value,value,...>``, read by the places of ``config/rule_sets/builder.yaml``; commas inside parentheses
do not separate. A line that the table has no class for, or that is longer or shorter than its class, is a ``UserError``
with file and line: it is never passed over. Lines say block size, tile and repeats; waves follow with the arch's wave
size. What the reference leaves out of the result is left out here by ``SKIP_RULES``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BeforeValidator, Field

from tileseer.core.errors import UserError
from tileseer.core.reading import read_utf8
from tileseer.core.strict_tables import StrictModel
from tileseer.facts.arch import ArchSpecs
from tileseer.facts.operations import Variant
from tileseer.libraries.ck_tile import flags
from tileseer.libraries.ck_tile.depthwise import DepthwiseConfig
from tileseer.libraries.ck_tile.kernel import KernelConfig
from tileseer.libraries.ck_tile.upstream import reference_filter
from tileseer.libraries.ck_tile.upstream.full_set import Cell
from tileseer.libraries.ck_tile.upstream.named_tables import CLASS_OF, Class, Pipeline
from tileseer.libraries.ck_tile.upstream.reference_filter import without_broken
from tileseer.libraries.rules import Columns, Rule

Value = TypeVar("Value")
Name = Literal[
    "specialization", "block", "tile", "ak1", "bk1", "matrix", "repeats", "vectors", "scheduler", "version", "direct",
    "groups", "waves", "warp_tile", "pipeline", "split_image", "explicit_gemm", "double_smem_buffer", "wave_groups",
    "streamk", "reduction", "persistent", "depthwise", "padding",
]  # fmt: skip
Places = Annotated[list[int], BeforeValidator(lambda value: [value] if isinstance(value, int) else value)]
EPILOGUE = "cshuffle"

_TEMPLATE_INSTANCE = re.compile(r"(\w+)<(.*)>", re.ASCII | re.DOTALL)
_BOOL_OF_WORD = {"0": False, "1": True, "false": False, "true": True}
_SIZE = r"([1-9]\d*)"
_EXPLICIT: dict[str, tuple[str, str]] = {
    "vectors": ("VmemReadVec", rf"{_SIZE}x{_SIZE}xSeq\({_SIZE}(?:,\3)*\)"),
    "tile": ("BlkTile", f"{_SIZE}x{_SIZE}x{_SIZE}"),
    "matrix": ("WaveTile", f"{_SIZE}x{_SIZE}"),
    "repeats": ("WaveMap", f"{_SIZE}x{_SIZE}"),
    "version": ("BlkGemmPipelineVersion", r"(\w+)"),
    "scheduler": ("BlkGemmPipelineScheduler", r"(\w+)"),
    "block": ("BlkSize", _SIZE),
    "ak1": ("K1", f"{_SIZE}x{_SIZE}"),
}
"""Keys of a line of the form ``explicit``, and the form of their values."""


class Files(StrictModel):
    """Where the instance files are: ``paths`` of each direction below a folder of the checkout."""

    folder: str
    layouts: dict[int, str]
    paths: dict[str, list[str]]
    depthwise: str
    """All data types share it."""


class InstanceClass(StrictModel):
    """A class of instances: lengths of its list, and the places of its values there; ``options``: what it implies."""

    form: Literal["tiled", "explicit", "native", "depthwise"]
    variant: Variant
    fields: list[int] = Field(default_factory=list)
    places: dict[Name, Places] = Field(default_factory=dict)
    options: dict[str, bool | str] = Field(default_factory=dict)


class BuilderRules(StrictModel):
    """``builder.yaml``."""

    files: Files
    comment_signs: list[str]
    kinds: dict[str, InstanceClass]
    specializations: dict[str, str]
    schedulers: dict[str, str]
    pipelines: dict[str, Pipeline]
    lossy: dict[str, str]
    reductions: dict[str, str]
    matrix_k: dict[Class, dict[int, int]]


def read_lines(path: Path, rules: BuilderRules) -> Iterator[Line]:
    """Yield the instances of a file in order; a missing file and a foreign line are a ``UserError``."""
    if not path.exists():
        raise UserError(
            f"{path}: there is no such instance file; the rule sets profiler and tests are read from a Composable "
            "Kernel checkout: give its top folder as ck.root (--ck-root DIR), of a state that has this file"
        )
    for number, line in enumerate(read_utf8(path).splitlines(), start=1):
        if line.strip() and not any(sign in line for sign in rules.comment_signs):
            yield Line(line.strip(), f"{path}:{number}", rules)


class Line:
    """One instance, whose values are asked for by name; messages about it begin with ``where`` (file:line)."""

    def __init__(self, text: str, where: str, rules: BuilderRules) -> None:
        self.where = where
        match = _TEMPLATE_INSTANCE.fullmatch(text)
        if not match or match[1] not in rules.kinds:
            classes = ", ".join(rules.kinds)
            raise UserError(f"{where}: this is no instance of a known class: {text[:60]!r}; known: {classes}")
        self._name, self.kind = match[1], rules.kinds[match[1]]
        explicit = self.kind.form == "explicit"
        self._texts: dict[str, list[str]] = self._explicit(match[2]) if explicit else self._listed(match[2])

    def __contains__(self, name: str) -> bool:
        return name in self._texts

    def text(self, name: str, absent: str = "") -> str:
        """Return the value as it stands there."""
        return self._texts.get(name, [absent])[0]

    def word(self, name: str, table: Mapping[str, Value], absent: str = "") -> Value:
        """Return what the value stands for in a table."""
        text = self.text(name, absent)
        if text not in table:
            raise self.error(f"{name} {text!r} is unknown; known: {', '.join(table)}")
        return table[text]

    def flag(self, name: str) -> bool:
        """Return a yes or no; absent is no."""
        return self.word(name, _BOOL_OF_WORD, "false")

    def sizes(self, name: str, least: int = 1) -> tuple[int, ...]:
        """Return whole numbers; none if they are absent."""
        texts = self._texts.get(name, ())
        for text in texts:
            if not (text.isascii() and text.isdigit() and int(text) >= least):
                raise self.error(f"{name} is {text!r}; a number of at least {least} is expected")
        return tuple(map(int, texts))

    def size(self, name: str, absent: int = 0) -> int:
        """Return the smallest of some whole numbers."""
        return min(self.sizes(name), default=absent)

    def error(self, reason: str) -> UserError:
        """Return the error that says what is wrong with the line."""
        return UserError(f"{self.where}: {self._name}: {reason}")

    def _listed(self, body: str) -> dict[str, list[str]]:
        values = _split(body)
        if len(values) not in self.kind.fields:
            expected = " or ".join(map(str, self.kind.fields))
            raise self.error(f"{len(values)} values, {expected} expected: the format of the file has changed")
        places = self.kind.places.items()
        return {name: [values[at] for at in row] for name, row in places if max(row) < len(values)}

    def _explicit(self, body: str) -> dict[str, list[str]]:
        """Read the ``Key: value`` list behind the inner ``>``."""
        items = (item.partition(":") for item in _split(body.partition(">")[2]))
        values = {key.strip(): value.strip() for key, _, value in items}
        texts = {}
        for name, (key, form) in _EXPLICIT.items():
            match = re.fullmatch(form, values.get(key, ""), re.ASCII)
            if not match:
                raise self.error(f"{key} is {values.get(key)!r}; {form} is expected")
            texts[name] = list(match.groups())
        return texts


def _split(text: str) -> list[str]:
    """Split on commas outside parentheses."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text)]


def gemm_kernels(
    cell: Cell, rule_set: str, root: Path, rules: BuilderRules, specs: ArchSpecs
) -> dict[KernelConfig, str]:
    """Return the kernels of a cell in file order, with the pipeline that the first line of each asked for if another.

    1D has no files and no kernels.
    """
    layout = rules.files.layouts.get(cell.ndim)
    if layout is None:
        return {}
    lines = []
    for form in rules.files.paths[cell.variant]:
        path = form.format(set=rule_set, layout=layout, dtype=cell.dtype)
        for line in read_lines(root / rules.files.folder / path, rules):
            if line.kind.form == "depthwise" or line.kind.variant != cell.variant:
                raise UserError(f"{line.where}: an instance of {line.kind.variant} ({line.kind.form}) in this file")
            lines.append(line)
    return _kernels_of(lines, cell, rules, specs)


def depthwise_kernels(
    dtypes: Sequence[str], rule_set: str, root: Path, rules: BuilderRules
) -> Iterator[DepthwiseConfig]:
    """Yield the depthwise kernels, data types innermost."""
    path = rules.files.depthwise.format(set=rule_set)
    for line in read_lines(root / rules.files.folder / path, rules):
        if line.kind.form != "depthwise":
            raise UserError(f"{line.where}: an instance of {line.kind.variant} among the depthwise ones")
        for dtype in dtypes:
            kernel = DepthwiseConfig(dtype, *line.sizes("depthwise"))
            if line.sizes("padding", least=0) != (kernel.pad, kernel.pad):
                raise line.error(f"a filter of {kernel.filter_size} has the padding {kernel.pad}x{kernel.pad}")
            yield kernel


def _kernels_of(lines: Iterable[Line], cell: Cell, rules: BuilderRules, specs: ArchSpecs) -> dict[KernelConfig, str]:
    """Return the kernel of each line that makes one that the reference keeps, the first of equal ones."""
    kernels: dict[KernelConfig, str] = {}
    for line in lines:
        word = line.text("pipeline") or "direct " * line.flag("direct") + line.text("version", "v1")
        if word not in rules.pipelines:
            raise line.error(f"pipeline {word!r} is unknown; known: {', '.join(rules.pipelines)}")
        kernel = _kernel_of(line, rules.pipelines[word], cell, rules, specs)
        if kernel:
            kernels.setdefault(kernel, rules.lossy.get(word, ""))
    return {kernel: kernels[kernel] for kernel in without_broken(SKIP_RULES, list(kernels), cell.arch, specs)}


def _kernel_of(line: Line, pipeline: str, cell: Cell, rules: BuilderRules, specs: ArchSpecs) -> KernelConfig | None:
    """Return the kernel of a line; none if its block is no whole number of waves on the arch."""
    if "bk1" in line and line.sizes("ak1") != line.sizes("bk1"):
        raise line.error(f"AK1 is {line.text('ak1')} and BK1 {line.text('bk1')}; they have to be equal")
    m, n, *depth = line.sizes("tile")
    tile = (m, n, math.prod(depth))
    options: dict[str, Any] = {
        "specialization": line.word("specialization", rules.specializations, "Default"),
        "num_groups_to_merge": line.size("groups", 1),
        "num_wave_groups": line.size("wave_groups", 1),
        "double_smem_buffer": line.flag("double_smem_buffer") if line.kind.form == "native" else pipeline == "compv4",
        "explicit_gemm": line.flag("explicit_gemm"),
        "split_image": line.flag("split_image"),
        **line.kind.options,
    }
    if line.flag("streamk"):
        options["streamk"] = line.word("reduction", rules.reductions)
        options["streamk_persistent"] = line.flag("persistent")
    options = {"two_stage": _stores_odd(line, options, cell), **options}
    scheduler = line.word("scheduler", rules.schedulers, "Intrawave")
    shape = (*line.sizes("waves"), *line.sizes("warp_tile")) or _shape(line, tile, cell, rules, specs)
    if not shape:
        return None
    words = cell.variant, cell.dtype, rules.files.layouts[cell.ndim], cell.ndim, pipeline, EPILOGUE, scheduler
    sizes: list[Any] = [*tile, *shape, *line.sizes("vectors")]
    return KernelConfig(*words, *sizes, **options)


def _shape(line: Line, tile: Sequence[int], cell: Cell, rules: BuilderRules, specs: ArchSpecs) -> tuple[int, ...]:
    """Return waves and warp tile (m, n, k each) of a block size; nothing if it is no whole number of waves."""
    block, matrix = line.size("block"), line.sizes("matrix")
    waves_m, waves_n = (
        size // (side * repeat) for size, side, repeat in zip(tile[:2], matrix, line.sizes("repeats"), strict=True)
    )
    lanes = specs.arch(cell.arch).wave_size * waves_m * waves_n
    by_matrix = rules.matrix_k[CLASS_OF[cell.dtype]]
    if lanes < 1 or block < lanes or matrix[0] not in by_matrix:
        return ()
    return waves_m, waves_n, block // lanes, *matrix, min(max(line.size("ak1"), by_matrix[matrix[0]]), tile[2])


def _stores_odd(line: Line, options: Mapping[str, Any], cell: Cell) -> bool:
    """Tell whether a second stage is needed: 16-bit results cannot be added up one by one."""
    stores = line.sizes("vectors")[2]
    if CLASS_OF[cell.dtype] != "half" or cell.variant != "bwd_weight" or "streamk" in options:
        return False
    return stores == 1 if line.kind.form == "native" else options["explicit_gemm"] and stores % 2 == 1


def _one_wave_covers(k: Columns) -> np.ndarray:
    """Tell whether one wave reads a whole row of A and of B."""
    rows_a = np.where(k["variant"] == "bwd_weight", k["tile_m"], k["tile_k"])
    a, b = rows_a <= k["wave_size"] * k["vec_a"], k["tile_n"] <= k["wave_size"] * k["vec_b"]
    return (k["variant"] == "forward") | (a & b)


def _share_holds_vector(k: Columns) -> np.ndarray:
    """Tell whether a vector of A or B is no wider than a thread's share of the tile, for bwd_data."""
    a = k["vec_a"] <= k["tile_m"] * k["tile_k"] // k["threads"]
    b = k["vec_b"] <= k["tile_n"] * k["tile_k"] // k["threads"]
    return (k["variant"] != "bwd_data") | (a & b)


SKIP_RULES = (
    reference_filter.WAVE32_INSTRUCTION,
    Rule(
        "backward_vectors",
        reference_filter.VECTORS_ONE_OR_EVEN.reason,
        ("kernel",),
        lambda k: (k["variant"] == "forward") | reference_filter.VECTORS_ONE_OR_EVEN.holds(k),
    ),
    Rule(
        "one_wave_covers",
        "a row of A or B is longer than {wave_size} lanes x its vector",
        ("kernel",),
        _one_wave_covers,
    ),
    Rule("share_holds_vector", "a vector is wider than a thread's share of A or B", ("kernel",), _share_holds_vector),
    flags.STREAMK_ASYNC_FP32,
)
"""Of kernels that the reference leaves out."""
