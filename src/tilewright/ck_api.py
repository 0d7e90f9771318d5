"""The table of C++ names that the templates fill in: what the kernel table's words are called in CK Tile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from tilewright.kernel import LAYOUTS, PIPELINES, SCHEDULERS, SPECIALIZATIONS, STREAMK
from tilewright.operation import DTYPES, VARIANTS
from tilewright.tables import Table, read

Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")]
TypeName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w:]*(<>)?$")]
HeaderPath = Annotated[str, StringConstraints(pattern=r"^[\w./]+\.hpp$")]
TensorName = Literal["In", "Wei", "Out"]
Variant = Literal["forward", "bwd_data", "bwd_weight"]


class Includes(Table):
    """Headers of CK Tile by what needs them."""

    kernel: list[HeaderPath]
    two_stage: list[HeaderPath]
    streamk: list[HeaderPath]
    depthwise: list[HeaderPath] = Field(default_factory=list)
    """All that a depthwise kernel needs."""
    registration: list[HeaderPath]


class LayoutRow(Table):
    """The registry's label and the layout tags of the three tensors."""

    label: Identifier
    input: Identifier
    weight: Identifier
    output: Identifier


class Product(Table):
    """A product of members of ``ConvParam`` and of the elements of one of its lists."""

    factors: list[Identifier]
    extents: Identifier


class Zeroed(Table):
    """The output that a launch clears first."""

    when: Literal["always", "split_k"]
    pointer: Identifier
    elements: Product


class VariantRow(Table):
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

    @property
    def reduces_into_workspace(self) -> bool:
        """Whether the kernel class has stream-K and two-stage forms."""
        return self.streamk_config_alias is not None


class PipelineRow(Table):
    """A GEMM pipeline, and how its tail is dispatched."""

    enumerator: Identifier
    pipeline: Identifier
    arguments: list[Annotated[str, StringConstraints(pattern=r"^\w+$")]]
    base: Identifier | None
    tail: Literal["hot_loop", "hot_loop_and_tail", "none"]
    variants: list[Variant] = Field(min_length=1)


class DepthwiseRow(Table):
    """Class templates of the depthwise forward kernel."""

    traits: Identifier
    pipeline: Identifier


class CkApi(Table):
    """The whole table, for one level of the CK Tile API."""

    level: str
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
        for field, words in (
            ("dtypes", DTYPES),
            ("layouts", tuple(LAYOUTS)),
            ("specializations", SPECIALIZATIONS),
            ("schedulers", SCHEDULERS),
            ("streamk", STREAMK[1:]),
            ("variants", VARIANTS),
            ("pipelines", PIPELINES),
        ):
            rows = set(getattr(self, field))
            if rows != set(words):
                wrong = sorted(map(str, rows ^ set(words)))
                raise ValueError(f"{field} has to have a row for each of {words} and no other; see {wrong}")
        return self


def load(path: str | Path) -> CkApi:
    """Read and check a table; a ``UserError`` names file, field, value and reason."""
    return read(path, CkApi)
