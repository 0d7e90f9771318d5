"""The table of C++ names that the templates fill in: what the kernel table's words are called in CK Tile."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from tileseer.core.errors import UserError
from tileseer.core.reading import read_bytes
from tileseer.core.strict_tables import StrictModel, validate_table
from tileseer.core.yaml_files import read_yaml
from tileseer.facts.operations import DTYPES, VARIANTS, Variant
from tileseer.libraries.ck_tile.depthwise import DepthwiseConfig
from tileseer.libraries.ck_tile.kernel import (
    KERNEL_FIELDS,
    LAYOUTS_OF_NDIM,
    PIPELINES,
    SCHEDULERS,
    SPECIALIZATIONS,
    STREAMK,
    KernelConfig,
)

LEVELS = ("2026.06", "2025.11")
"""API levels of CK Tile that the templates speak, the newest first."""
NEWEST = LEVELS[0]
TRIPLES = ("tile", "wave", "warp_tile")
"""Three fields of a kernel in one word."""
OWN_VECTORS = "own_vectors"
"""What tables may say of a kernel beside its fields."""
TRANSPOSED = {
    "forward": (),
    "bwd_data": (("tile_n", "vec_b"),),
    "bwd_weight": (("tile_m", "vec_a"), ("tile_n", "vec_b")),
}
"""Tensors whose contiguous side is not the K of the GEMM: that side, and the elements of a load."""
WAVE_SIZE = 64

Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")]
TypeName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w:]*(<>)?$")]
HeaderPath = Annotated[str, StringConstraints(pattern=r"^[\w./]+\.hpp$")]
TensorName = Literal["In", "Wei", "Out"]


class Includes(StrictModel):
    """Headers of CK Tile by what needs them."""

    kernel: list[HeaderPath]
    two_stage: list[HeaderPath]
    streamk: list[HeaderPath]
    depthwise: list[HeaderPath] = Field(default_factory=list)
    """All that a depthwise kernel needs."""
    registration: list[HeaderPath]


class LayoutRow(StrictModel):
    """The registry's label and the layout tags of the three tensors."""

    label: Identifier
    input: Identifier
    weight: Identifier
    output: Identifier


class Product(StrictModel):
    """A product of members of ``ConvParam`` and of the elements of one of its lists."""

    factors: list[Identifier]
    extents: Identifier


class Zeroed(StrictModel):
    """The output that a launch clears first."""

    when: Literal["always", "split_k"]
    pointer: Identifier
    elements: Product


class VariantRow(StrictModel):
    """A direction: which tensor plays which role, its kernel class, and its names in the generated files."""

    short: Identifier
    a: TensorName
    b: TensorName
    c: TensorName
    layout_suffix: Identifier
    kernel_class: Identifier
    kernel_header: HeaderPath
    host_args: TypeName
    gemm_k: Product
    zeroed: Zeroed | None
    name_constant: Identifier
    config_alias: Identifier
    streamk_config_alias: Identifier | None = None
    """``config_alias`` of a stream-K kernel; a direction without one has no stream-K and no two-stage kernels."""
    launcher_alias: Identifier
    operation: Identifier
    run_function: Identifier
    is_supported_function: Identifier
    adapts_traits: bool = False
    """Whether the kernel class reads a member that the convolution traits lack (templates/adapters.hpp.j2)."""

    @property
    def reduces_into_workspace(self) -> bool:
        """Whether the kernel class has stream-K and two-stage forms."""
        return self.streamk_config_alias is not None


class PipelineRow(StrictModel):
    """A GEMM pipeline, and how its tail is dispatched."""

    enumerator: Identifier
    pipeline: Identifier
    arguments: list[Annotated[str, StringConstraints(pattern=r"^\w+$")]]
    base: Identifier | None
    tail: Literal["hot_loop", "hot_loop_and_tail", "none", "fixed"]
    variants: list[Variant] = Field(min_length=1)
    hot_tail: Identifier | None = None
    """Tail number of a long loop, where the tail is a part of the kernel's type."""
    adapter: Literal["TupleWindows", "TupleWindowsPassed"] | None = None
    """What stands between it and the kernels, which call it otherwise (templates/adapters.hpp.j2)."""


def with_own_vectors(kernel: KernelConfig) -> KernelConfig:
    """Return the kernel with transposed tensors loaded as CK Tile would choose by itself.

    That is 16 bytes, 8 bytes, or else one element: the first that divides a row of the tile and a thread's share.
    CK Tile transposes no others in registers.
    """
    size = 4 if kernel.dtype == "fp32" else 2
    threads = WAVE_SIZE * kernel.wave_m * kernel.wave_n * kernel.wave_k
    changes: dict[str, Any] = {}
    for side, vector in TRANSPOSED[kernel.variant]:
        row = getattr(kernel, side)
        share = row * kernel.tile_k // threads
        own = next((n for n in (16 // size, 8 // size) if row % n == share % n == 0), 1)
        if min(getattr(kernel, vector), max(share, 1)) != own:
            changes[vector] = own
    return replace(kernel, **changes)


def field_word(kernel: KernelConfig, field: str) -> str | int | bool:
    """Return the value of a field as tables write it; ``tile``, ``wave`` and ``warp_tile`` as 16x16x32."""
    if field == OWN_VECTORS:
        return kernel == with_own_vectors(kernel)
    value = getattr(kernel, field)
    return "x".join(map(str, value)) if isinstance(value, tuple) else value


class Lack(StrictModel):
    """Kernels that a level lacks: those whose every named field has one of the values."""

    kernel: dict[str, list[str | int | bool]] = Field(min_length=1)
    reason: str
    arch: list[str] = Field(default_factory=list)
    """Archs that this holds for; empty: all."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        unknown = set(self.kernel) - {*KERNEL_FIELDS, *TRIPLES, OWN_VECTORS}
        if unknown:
            raise ValueError(f"kernel: a kernel has no field {sorted(unknown)}")
        return self

    def holds(self, kernel: KernelConfig, arch: str = "") -> bool:
        """Return whether the kernel is one of these on an arch; without one: on some arch."""
        on_arch = not (arch and self.arch) or arch in self.arch
        return on_arch and all(field_word(kernel, field) in values for field, values in self.kernel.items())


class Detection(StrictModel):
    """How a CK tree shows its level: a header that has to be there, and words that it holds or does not hold."""

    header: HeaderPath
    contains: str


class DepthwiseRow(StrictModel):
    """Class templates of the depthwise forward kernel."""

    traits: Identifier
    pipeline: Identifier


class CkApi(StrictModel):
    """The whole table, for one level of the CK Tile API."""

    level: str
    detect: Detection
    """Which tree is of this level."""
    loop: Literal["run_time", "type"]
    """Where hot loop, tail and the way to write the output are chosen: in the kernel, or as a part of its type."""
    lacks: list[Lack]
    """Kernels that there is no form for."""
    not_compiled: list[Lack] = Field(default_factory=list)
    """Kernels that have a form and do not compile, found by compiling (tools/compile_matrix.py)."""
    wrong: list[Lack] = Field(default_factory=list)
    """Kernels that compile and compute wrong results, found by executing (tools/emulated_matrix.py)."""
    one_slice: list[Lack] = Field(default_factory=list)
    """Kernels that run only with split-K 1."""
    includes: Includes
    dtypes: dict[str, Identifier]
    layouts: dict[int, LayoutRow]
    specializations: dict[str, Identifier]
    schedulers: dict[str, Identifier]
    streamk: dict[str, Identifier]
    variants: dict[str, VariantRow]
    pipelines: dict[str, PipelineRow]
    depthwise: DepthwiseRow | None = None
    """Absent where this level of the API has no depthwise kernel."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        words = {
            "dtypes": DTYPES,
            "layouts": LAYOUTS_OF_NDIM,
            "specializations": SPECIALIZATIONS,
            "schedulers": SCHEDULERS,
            "streamk": STREAMK[1:],
            "variants": VARIANTS,
            "pipelines": PIPELINES,
        }
        for field, own in words.items():
            if wrong := sorted(map(str, set(getattr(self, field)) ^ set(own))):
                raise ValueError(f"{field} has to have a row for each of {tuple(own)} and no other; see {wrong}")
        return self

    def lack(self, kernel: KernelConfig | DepthwiseConfig, arch: str) -> str:
        """Return why this level lacks the kernel on an arch, or an empty string."""
        return self.not_built(kernel, arch) or _reason("its results are wrong: ", self.wrong, kernel, arch)

    def not_built(self, kernel: KernelConfig | DepthwiseConfig, arch: str) -> str:
        """Return why the kernel cannot be compiled for an arch, or an empty string."""
        return self.no_form(kernel) or _reason("it does not compile: ", self.not_compiled, kernel, arch)

    def only_one_slice(self, kernel: KernelConfig | DepthwiseConfig) -> str:
        """Return why the kernel refuses every split-K above 1, or an empty string."""
        return _reason("", self.one_slice, kernel)

    def no_form(self, kernel: KernelConfig | DepthwiseConfig) -> str:
        """Return why this level has no form for the kernel, or an empty string."""
        if isinstance(kernel, DepthwiseConfig) and not self.depthwise:
            return f"the level {self.level} of the CK Tile API has no depthwise kernel"
        return _reason("", self.lacks, kernel)


def _reason(verdict: str, rows: Iterable[Lack], kernel: KernelConfig | DepthwiseConfig, arch: str = "") -> str:
    if isinstance(kernel, DepthwiseConfig):
        return ""
    return next((f"{verdict}{row.reason}" for row in rows if row.holds(kernel, arch)), "")


def read_api(path: str | Path, level: str = NEWEST) -> CkApi:
    """Read and check the table for one level of the API; a ``UserError`` names file, field, value and reason."""
    content = read_yaml(Path(path))
    older = content.pop("older", None) if isinstance(content, dict) else None
    if not isinstance(older, dict):
        raise UserError(f"{path}: older: this has to be a mapping of an API level to what it writes otherwise")
    known = [str(content.get("level")), *map(str, older)]
    if level not in known:
        raise UserError(f"{path}: no API level {level!r} here; there are {', '.join(known)}")
    changes = older.get(level, {})
    return validate_table(_merged(content, {**changes, "level": level}), CkApi, str(path))


def _merged(base: Any, changes: Any) -> Any:
    """Merge mappings row by row; anything else of ``changes`` replaces what was there."""
    if not (isinstance(base, dict) and isinstance(changes, dict)):
        return changes
    return base | {key: _merged(base.get(key), value) for key, value in changes.items()}


def detect_level(table: str | Path, root: Path | None) -> str:
    """Return the API level of the CK tree ``root``, the newest that fits; without a tree the newest.

    A ``UserError`` says what a tree of CK Tile has that this folder lacks.
    """
    if root is None:
        return NEWEST
    for level in LEVELS:
        mark = read_api(table, level).detect
        header = root / "include" / mark.header
        if header.is_file() and mark.contains.encode() in read_bytes(header):
            return level
    missing = read_api(table, LEVELS[-1]).detect.header
    raise UserError(
        f"{root}: this is no Composable Kernel tree of a known level: include/{missing} is missing or of another API; "
        f"set ck.root to the top folder of a tree, such as `make toolchain` brings, or ck.api to one of "
        f"{', '.join(LEVELS)}"
    )
