"""The table of ``config/rule_sets/builder.yaml``: where instance files lie and what each place in a line means."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tileseer.conv.operation import Variant
from tileseer.core.tables import Table
from tileseer.families.ck_tile.kernel import SPECIALIZATIONS
from tileseer.reference.named_tables import Class, Pipeline

Place = Annotated[int, Field(ge=0)]
Places3 = Annotated[list[Place], Field(min_length=3, max_length=3)]
Places2 = Annotated[list[Place], Field(min_length=2, max_length=2)]


class DepthwiseFile(Table):
    """The one file of depthwise instances of a set; all data types share it."""

    direction: str
    name: str


class Files(Table):
    """Where the instance files lie below the checkout."""

    folder: str
    directions: dict[Variant, str]
    layouts: dict[Literal[2, 3], str]
    names: dict[Variant, list[str]]
    depthwise: DepthwiseFile

    @model_validator(mode="after")
    def _names_can_be_filled_in(self) -> Self:
        for name in (name for names in self.names.values() for name in names):
            try:
                name.format(layout="", dtype="")
            except (KeyError, IndexError, ValueError) as error:
                raise ValueError(f"{name!r}: only {{layout}} and {{dtype}} can be filled in") from error
        return self


class Options(Table):
    """Options of a kernel that the class of an instance implies."""

    split_image: bool = False
    two_stage: bool = False


class Kind(Table):
    """Where the values of one class of instances stand; an absent place means that the class has no such value."""

    form: Literal["tiled", "explicit", "native", "depthwise"]
    variant: Variant
    fields: list[Annotated[int, Field(ge=1)]] = Field(default_factory=list)
    specialization: Place | None = None
    block: Place | None = None
    tile: Annotated[list[Place], Field(min_length=3, max_length=4)] | None = None
    ak1: Place | None = None
    bk1: Place | None = None
    matrix: Places2 | None = None
    repeats: Places2 | None = None
    vectors: Places3 | None = None
    scheduler: Place | None = None
    version: Place | None = None
    direct: Place | None = None
    groups: Place | None = None
    waves: Places3 | None = None
    warp_tile: Places3 | None = None
    pipeline: Place | None = None
    split_image: Place | None = None
    explicit_gemm: Place | None = None
    double_smem_buffer: Place | None = None
    wave_groups: Place | None = None
    streamk: Places3 | None = None
    options: Options = Options()

    @model_validator(mode="after")
    def _form_is_complete(self) -> Self:
        needed = {
            "tiled": ("specialization", "block", "tile", "ak1", "matrix", "repeats", "vectors"),
            "native": ("specialization", "tile", "waves", "warp_tile", "vectors", "pipeline", "scheduler"),
            "explicit": (),
            "depthwise": (),
        }[self.form]
        missing = [field for field in needed if getattr(self, field) is None]
        if missing:
            raise ValueError(f"the form {self.form} needs {', '.join(missing)}")
        if self.form != "explicit" and not self.fields:
            raise ValueError("fields is required: how long the list between < and > is")
        return self


class BuilderRules(Table):
    """``builder.yaml``."""

    files: Files
    comment_signs: list[str]
    kinds: dict[str, Kind]
    specializations: dict[str, Literal[SPECIALIZATIONS]]  # type: ignore[valid-type]
    schedulers: dict[str, Literal["intrawave", "interwave"]]
    versions: dict[str, Pipeline]
    direct_versions: dict[str, Pipeline]
    pipelines: dict[str, Pipeline]
    lossy: dict[str, str]
    streamk: dict[int, Literal["tree", "linear"]]
    matrix_k: dict[Class, dict[int, int]]
