"""MIOpen's find-db: measured times of its solvers, a line ``KEY=VALUES`` for each problem.

Values are ``SOLVER:MS,WORKSPACE,ALGORITHM`` or, in older files, ``ALGORITHM:SOLVER,MS,WORKSPACE,...``, apart by
semicolons. The key of a 2D problem, with what a 3D one adds in brackets, is::

    C-[D-]H-W-[Zx]YxX-K-[OD-]OH-OW-N-PADS-STRIDES-DILATIONS-BIAS-LAYOUT-DTYPE-DIRECTION[_gG]

The gradients (B: of the input, W: of the filter) have input and output swapped: their first C, H and W are the layer's
K, OH and OW. The layout is one word if all tensors are NCHW (NCDHW), else three words: of input, filter and output.
"""

import bz2
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from tileseer.core import locks
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.core.reading import regular_file
from tileseer.libraries.miopen.solvers import Release, algorithm_prefix, release_of
from tileseer.libraries.miopen.workspace import workspace
from tileseer.problems.problem import LAYOUTS, Problem, ndim_of

LONGEST_LINE, LARGEST = 2**20, 2**28
"""Bytes of a line and of a database, unpacked; MIOpen's largest database has a fifth of that."""
DIRECTION_OF_LETTER = {"F": "forward", "B": "bwd_data", "W": "bwd_weight"}
DTYPE_OF_WORD = {"FP32": "fp32", "FP16": "fp16", "BF16": "bf16"}
Word = TypeVar("Word")
Meaning = TypeVar("Meaning")
FIRST, LAST = LAYOUTS
LAYOUT_OF_WORDS = {("NCHW",): (2, FIRST), ("NCDHW",): (3, FIRST), ("NHWC",) * 3: (2, LAST), ("NDHWC",) * 3: (3, LAST)}
"""Dimensionality and layout of each form of the layout."""
_WHOLE_NUMBER = r"(?:0|[1-9][0-9]{0,17})"
_SIZE_PAIR = rf"{_WHOLE_NUMBER}(?:-{_WHOLE_NUMBER})"
_AXIS_NUMBERS = rf"{_WHOLE_NUMBER}(?:x{_WHOLE_NUMBER}){{1,2}}"
FORM_OF_A_KEY = (
    rf"(?P<first>{_SIZE_PAIR}{{2,3}})-(?P<filter>{_AXIS_NUMBERS})-(?P<second>{_SIZE_PAIR}{{3,4}})-(?P<pads>{_AXIS_NUMBERS})-"
    rf"(?P<strides>{_AXIS_NUMBERS})-(?P<dilations>{_AXIS_NUMBERS})-(?P<bias>{_WHOLE_NUMBER})-(?P<layouts>[A-Za-z]\w*(?:-[A-Za-z]\w*){{0,2}})-"
    r"(?P<dtype>[A-Z0-9]+)-(?P<direction>[FBW])(?:_g(?P<groups>[2-9]|[1-9][0-9]{1,17}))?"
)
FORM = re.compile(FORM_OF_A_KEY, re.ASCII)


class UnusableError(Exception):
    """The reason for which a part of a find-db cannot be used."""


class Layer(NamedTuple):
    """A key in the words of problems."""

    variant: str
    dtype: str
    ndim: int
    layout: str
    """Empty for the first of ``LAYOUTS``."""
    dims: tuple[int, ...]
    """The 19 dimensions."""
    output: tuple[int, ...]
    """Depth, height and width of the output."""


@dataclass(frozen=True)
class Key:
    """The parts of a key; ``str(Key.parse(text)) == text``."""

    first: tuple[int, ...]
    """Channels and extents of the tensor that the direction starts from."""
    filter: tuple[int, ...]
    second: tuple[int, ...]
    """Channels and extents of the other image."""
    batch: int
    pads: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    bias: int
    layouts: tuple[str, ...]
    dtype: str
    direction: str
    groups: int = 1

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a key; ``UnusableError`` if it has another form."""
        match = FORM.fullmatch(text)
        if not match:
            raise UnusableError("the key has another form")
        first, second = (tuple(map(int, match[name].split("-"))) for name in ("first", "second"))
        axes = [tuple(map(int, match[name].split("x"))) for name in ("filter", "pads", "strides", "dilations")]
        if {len(first) - 1, len(second) - 2, *map(len, axes)} != {len(axes[0])}:
            raise UnusableError("the key has another form")
        extents, pads, strides, dilations = axes
        return cls(
            first, extents, second[:-1], second[-1], pads, strides, dilations, int(match["bias"]),
            tuple(match["layouts"].split("-")), match["dtype"], match["direction"], int(match["groups"] or 1),
        )  # fmt: skip

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Return the key of a problem; without a layout it is NCHW."""
        ndim = problem.ndim
        images = (problem.C, *problem.dims[4:7][-ndim:]), (problem.K, *problem.output[-ndim:])
        first, second = images if problem.variant == DIRECTION_OF_LETTER["F"] else images[::-1]
        pads, strides, dilations = (
            tuple(getattr(problem, f"{name}_{axis}") for axis in "dhw"[-ndim:]) for name in _STEP_FIELDS
        )
        return cls(
            first, (problem.Z, problem.Y, problem.X)[-ndim:], second, problem.N, pads, strides, dilations, bias=0,
            layouts=_word(LAYOUT_OF_WORDS, (ndim, problem.layout or FIRST)), dtype=_word(DTYPE_OF_WORD, problem.dtype),
            direction=_word(DIRECTION_OF_LETTER, problem.variant), groups=problem.G,
        )  # fmt: skip

    def __str__(self) -> str:
        axes = ["x".join(map(str, one)) for one in (self.filter, self.pads, self.strides, self.dilations)]
        numbers = [*self.first, axes[0], *self.second, self.batch, *axes[1:], self.bias]
        text = "-".join([*map(str, numbers), *self.layouts, self.dtype, self.direction])
        return f"{text}_g{self.groups}" if self.groups > 1 else text

    def layer(self) -> Layer:
        """Return what the key says, in the words of problems; ``UnusableError`` if it is of none that we have.

        Whether it is a convolution is not checked.
        """
        if self.layouts not in LAYOUT_OF_WORDS:
            known = ", ".join("-".join(one) for one in LAYOUT_OF_WORDS)
            way = f"write {known}" if self.layouts * 3 in LAYOUT_OF_WORDS else f"problems here are {known}"
            raise UnusableError(f"layout {'-'.join(self.layouts)}: {way}")
        if self.dtype not in DTYPE_OF_WORD:
            raise UnusableError(f"data type {self.dtype}: problems here are {', '.join(DTYPE_OF_WORD)}")
        ndim, layout = LAYOUT_OF_WORDS[self.layouts]
        if len(self.filter) != ndim or self.bias:
            raise UnusableError("the key has another form")
        first, second = (self.first, self.second) if self.direction == "F" else (self.second, self.first)
        flat, no_pad = (1,) * (3 - ndim), (0,) * (3 - ndim)
        dims = (
            self.batch, first[0], second[0], self.groups, *flat, *first[1:], *flat, *self.filter,
            *flat, *self.strides, *no_pad, *self.pads, *flat, *self.dilations,
        )  # fmt: skip
        variant, dtype = DIRECTION_OF_LETTER[self.direction], DTYPE_OF_WORD[self.dtype]
        return Layer(variant, dtype, ndim, layout if layout == LAST else "", dims, (*flat, *second[1:]))

    def problem(self) -> Problem:
        """Return the problem, whose key is this one; ``UnusableError`` if the key is of none that we have."""
        layer = self.layer()
        values: tuple[Any, ...] = (layer.variant, layer.dtype, layer.ndim, *layer.dims, layer.layout)
        try:
            problem = Problem(*values)
        except UserError as error:
            raise UnusableError(NO_CONVOLUTION) from error
        if ndim_of(vars(problem)) != layer.ndim:
            raise UnusableError(FLAT)
        if problem.output != layer.output:
            raise UnusableError(OTHER_OUTPUT)
        return problem


NO_CONVOLUTION = "no convolution, or too large a one"
FLAT = "a 3D problem without depth, which is a 2D one here"
OTHER_OUTPUT = "the output's size does not follow from the input's"
_STEP_FIELDS = ("pad", "stride", "dilation")


def _word(words: Mapping[Word, Meaning], meaning: Meaning) -> Word:
    return next(word for word, value in words.items() if value == meaning)


class Entry(NamedTuple):
    """What a line has of one solver; ``str`` is its newer form."""

    solver: str
    time: str
    """Milliseconds, as MIOpen writes them."""
    workspace: str
    """Bytes."""
    algorithm: str

    def __str__(self) -> str:
        return f"{self.solver}:{self.time},{self.workspace},{self.algorithm}"


def parse_entry(text: str) -> Entry:
    """Read one entry of a line, of either form."""
    before, _, behind = text.strip().partition(":")
    parts = behind.split(",")
    if before.startswith("miopenConvolution"):
        before, *parts = parts
    # Numbers alone are tuned parameters, as in *.udb.txt.
    if len(parts) < 3 or parts[2].strip().isdigit():
        raise UnusableError("the entry has another form")
    return Entry(before, *parts[:3])


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file, unpacked; ``UserError`` where it is damaged."""
    size = 0
    with regular_file(path) as file:
        magic = file.read(3)
        if magic[:2] == b"\x1f\x8b":
            raise UserError(f"{path}: is packed by gzip; unpack it: gunzip {path.name}")
        packed = magic == b"BZh"
        file.seek(0)
        with bz2.open(file) if packed else file as stream:
            try:
                while line := stream.readline(LONGEST_LINE):
                    size += len(line)
                    if len(line) == LONGEST_LINE or size > LARGEST:
                        much = (
                            f"a line of {LONGEST_LINE:,} bytes" if size <= LARGEST else f"more than {LARGEST:,} bytes"
                        )
                        raise UserError(f"{path}: has {much}, unpacked: this is no find-db")
                    yield line.decode().rstrip("\r\n")
            except (ValueError, EOFError, OSError) as error:
                raise UserError(f"{path}: is damaged or no text ({error}); fetch it again") from error


MOST_UNITS_IN_DECIMAL = 64
"""Units up to which a file that MIOpen names has their number in decimal, behind an underscore; above, it is
hexadecimal. Files of an installation of RDNA GPUs have it in hexadecimal always."""
RDNA = re.compile(r"gfx1(?!25)")
"""Archs of which MIOpen counts workgroup processors, of two compute units each, except in hexadecimal names."""


class FileGpu(NamedTuple):
    """The GPU that the name of a database begins with: ``gfx942130``, ``gfx1201_32``, ``gfx110136``."""

    arch: str
    features: str
    compute_units: int

    @classmethod
    def of(cls, name: str) -> Self | None:
        """Return the GPU of a file's name; None if it begins with none."""
        match = _GPU_NAME.fullmatch(name.partition(".")[0])
        if not match:
            return None
        arch, is_rdna = match["arch"], bool(RDNA.match(match["arch"]))
        if match["decimal"]:
            units = int(match["decimal"])
            is_one = units <= MOST_UNITS_IN_DECIMAL
            units *= 2 if is_rdna else 1
        else:
            units = int(match["hex"], 16)
            is_one = is_rdna or units > MOST_UNITS_IN_DECIMAL
        return cls(arch, match["features"], units) if is_one else None


_GPU_NAME = re.compile(
    r"(?P<arch>gfx(?:1[0-9a-f]{3}|[0-9a-f]{3}))(?P<features>(?:_(?:no)?sramecc)?(?:_xnack)?)"
    r"(?:_(?P<decimal>[1-9][0-9]*)|(?P<hex>[1-9a-f][0-9a-f]*))",
    re.ASCII,
)
USER_DB = "MIOPEN_USER_DB_PATH"
"""Variable of the folder to which MIOpen's find step writes."""


def user_db(environment: Mapping[str, str]) -> Path:
    """Return the folder to which MIOpen's find step writes."""
    return Path(environment.get(USER_DB) or "~/.config/miopen").expanduser()


class FileName(NamedTuple):
    """Parts of ``gfx942130.HIP.3_2_0_36bb7fd4a.ufdb.txt``."""

    gpu: FileGpu
    build: str

    @property
    def release(self) -> Release:
        """The version of MIOpen."""
        return release_of(self.build)

    @classmethod
    def is_one(cls, path: Path) -> bool:
        """Return whether a file has the name of a user find-db of convolutions."""
        match = _UFDB_NAME.fullmatch(path.name)
        return bool(match and not match["more"] and FileGpu.of(path.name))

    @classmethod
    def parse(cls, path: Path) -> Self:
        """Read the name of a user find-db; ``UserError`` if it is none."""
        gpu, match = FileGpu.of(path.name), _UFDB_NAME.fullmatch(path.name)
        if not match or gpu is None:
            raise UserError(
                f"--user {path}: this is no name of a user find-db, such as gfx942130.HIP.3_2_0_36bb7fd4a.ufdb.txt; "
                "give a file that MIOpen wrote below ~/.config/miopen or MIOPEN_USER_DB_PATH"
            )
        return cls(gpu, match["build"])


_UFDB_NAME = re.compile(
    r"[a-z0-9_]+\.HIP\.(?P<build>[0-9]+_[0-9]+_[0-9]+(?:_[^.]*)?)(?P<more>\.[A-Za-z0-9_]+)?\.ufdb\.txt", re.ASCII
)
"""Some builds have no hash, some not even the underscore before it; other databases than that of convolutions have a
word behind it."""


FEWEST_CONFIRMING = 10
"""Rows of a kind of problems that make a formula of workspaces sure, if each of them keeps it."""


@dataclass(frozen=True)
class Measured:
    """What MIOpen itself wrote into some files."""

    records: Mapping[str, str]
    """The entries of each key, as one text."""
    algorithms: Mapping[tuple[str, str], str]
    """By solver and direction letter."""

    @property
    def solvers(self) -> set[str]:
        """The solvers that the files name."""
        return {solver for solver, _ in self.algorithms}

    @classmethod
    def read(cls, paths: Sequence[Path], newest_form: bool = False) -> Self:
        """Read find-dbs. ``newest_form``: ``UserError`` for lines of the older form."""
        records: dict[str, str] = {}
        algorithms: dict[tuple[str, str], str] = {}
        for path in paths:
            for number, line in enumerate(read_lines(path), start=1):
                key, _, values = line.partition("=")
                if newest_form and values.startswith("miopenConvolution"):
                    raise UserError(
                        f"--user {path}, line {number}: this build of MIOpen writes an older form of records, which is "
                        "not written here; give a file of a newer build"
                    )
                records.setdefault(key, values)
                direction = _DIRECTION.search(key)
                for entry in _entries(values) if direction else ():
                    if direction and entry.algorithm.startswith(algorithm_prefix(direction[1])):
                        algorithms.setdefault((entry.solver, direction[1]), entry.algorithm)
        return cls(records, algorithms)

    def entry(self, key: str, solver: str) -> Entry | None:
        """Return what the record of a key has of a solver, if its workspace is a number of bytes."""
        entries = (one for one in _entries(self.records.get(key, "")) if one.solver == solver)
        return next((one for one in entries if re.fullmatch("[0-9]{1,18}", one.workspace)), None)

    def workspace(self, key: str, solver: str) -> int | None:
        """Return the bytes of workspace that the record of a key has for a solver."""
        entry = self.entry(key, solver)
        return entry and int(entry.workspace)

    def confirms(self, solver: str, problem: Problem) -> bool:
        """Return whether rows of problems of the same kind are enough to trust the formula of a solver's workspace.

        Each of them has to need no more than the formula says.
        """
        return self._confirmed.get((solver, *_workspace_kind(problem)), 0) >= FEWEST_CONFIRMING

    @cached_property
    def _confirmed(self) -> dict[tuple[Any, ...], float]:
        """How many rows keep the formula, by solver and kind; -inf where one does not."""
        counts: dict[tuple[Any, ...], float] = {}
        for key, values in self.records.items():
            try:
                problem = Key.parse(key).problem()
            except UnusableError:
                continue
            kind = _workspace_kind(problem)
            for entry in _entries(values):
                size = workspace(entry.solver, problem)
                if size is not None and re.fullmatch("[0-9]{1,18}", entry.workspace):
                    kept = 1 if int(entry.workspace) <= size else -math.inf
                    counts[entry.solver, *kind] = counts.get((entry.solver, *kind), 0) + kept
        return counts


def _workspace_kind(problem: Problem) -> tuple[Any, ...]:
    """Return what a formula of workspaces may depend on, beside sizes."""
    strided = problem.stride_h > 1 or problem.stride_w > 1
    return problem.variant, problem.dtype, problem.ndim, problem.layout == LAST, problem.G > 1, strided


def timed_files(folder: Path, user: Path) -> list[Path]:
    """Return the files of a folder of tuned choices whose records are of the GPU and the version of ``user``."""
    own = FileName.parse(user)
    return [
        path
        for path in (sorted(folder.glob("*.ufdb.txt")) if folder.is_dir() else ())
        if FileName.is_one(path) and FileGpu.of(path.name) == own.gpu and FileName.parse(path).release == own.release
    ]


def add_records(folder: Path, name: str, records: Mapping[str, Sequence[Entry]]) -> None:
    """Add entries to a find-db of a folder; those of other solvers of the same keys stay."""
    folder.mkdir(parents=True, exist_ok=True)
    with locks.hold_folder(folder):
        path = folder / name
        before = Measured.read([path] if path.is_file() else [])
        lines = dict(before.records)
        for key, entries in records.items():
            others = [one for one in _entries(lines.get(key, "")) if one.solver not in {own.solver for own in entries}]
            lines[key] = ";".join(map(str, [*others, *entries]))
        write_text(path, "".join(f"{key}={values}\n" for key, values in lines.items()))


_DIRECTION = re.compile(r"-([FBW])(?:_g[0-9]+)?$")


def _entries(values: str) -> Iterator[Entry]:
    for value in filter(None, values.split(";")):
        with suppress(UnusableError):
            yield parse_entry(value)
