"""The whole of ``config/config.yaml``."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints, ValidationError, field_validator

from tileseer.core.documents import read_json
from tileseer.core.errors import UserError, shown
from tileseer.core.strict_tables import distinct, expected, validate_table, wrong_below
from tileseer.core.yaml_files import parse_yaml, read_yaml
from tileseer.facts.benchmark import BenchmarkSettings, LockSettings
from tileseer.facts.compile import CacheSettings, CkSettings, CompileSettings, CutlassSettings
from tileseer.facts.inputs import ConfigsSettings, ProblemsSettings
from tileseer.facts.model import ModelSettings
from tileseer.facts.names import ConfiguredArch
from tileseer.facts.operations import DTYPES, OPERATION_PATTERN, VARIANTS
from tileseer.facts.section import Section, SourcePath

TEMPLATE_KEY = "__use_yte__"
"""With it Snakemake takes a configuration for a template."""
_OF_THE_MACHINE: dict[str, Any] = {
    "cache": True, "lock": True, "ck": {"root"}, "cutlass": {"root"}, "compile": {"compiler"}
}  # fmt: skip


class PublishSettings(Section):
    """Where models are published, and what publishing may replace."""

    name: Annotated[
        str,
        StringConstraints(pattern="^([a-z0-9_]{1,40})?$"),
        expected("at most 40 small letters, digits and _, such as smoke"),
    ] = ""
    """What a trial is called: its models and report are ``results/models/ARCH-NAME`` and ``results/reports/ARCH-NAME``,
    so that those without a name stay as they are. Those of another learner have its name as well."""

    replace: bool = False
    """Whether models of measured times may be replaced by models of recorded or simulated times."""


class Config(Section):
    """What the workflow builds, and how."""

    arch: ConfiguredArch = "gfx950"
    """The arch that a plain ``snakemake`` builds; ``results/models/ARCH`` selects another one."""
    operations: list[str] | None = Field(None, min_length=1)
    """Learning tasks: DIRECTION_DTYPE, one model each. By default the three directions in bf16; for a replayed
    arch, all recorded ones."""
    arch_specs: SourcePath = "config/arch_specs.json"
    """The one source of facts about GPU targets."""
    hardware: SourcePath = "config/hardware.yaml"
    """Table of GPU products."""
    replays: dict[str, SourcePath] = Field(
        {
            arch: f"config/recorded/{arch}"
            for arch in ("sm_90", "sm_90_cudnn", "gfx950_mi355x", "gfx942_miopen", "gfx90a_miopen")
        }
    )
    """Recorded archs, each with the folder of its recording. Such an arch is replayed from kernels to times,
    whatever ``benchmark.device`` is."""
    configs: ConfigsSettings = ConfigsSettings()
    problems: ProblemsSettings = ProblemsSettings()
    ck: CkSettings = CkSettings()
    cutlass: CutlassSettings = CutlassSettings()
    compile: CompileSettings = CompileSettings()
    benchmark: BenchmarkSettings = BenchmarkSettings()
    lock: LockSettings = LockSettings()
    cache: CacheSettings = CacheSettings()
    model: ModelSettings = ModelSettings()
    publish: PublishSettings = PublishSettings()

    def published_as(self, arch: str) -> str:
        """Return the name of the folder of an arch's models, and of its report: those of a trial have their own."""
        other = self.model.learner if self.model.learner != ModelSettings().learner else ""
        return "-".join(filter(None, (arch, self.publish.name, other)))

    def portable(self) -> dict[str, Any]:
        """Return the settings without those that only say where things are on a machine."""
        return self.model_dump(mode="json", exclude=_OF_THE_MACHINE)

    def of_the_machine(self) -> dict[str, Any]:
        """Return the other settings: they change no result."""
        return self.model_dump(mode="json", include=_OF_THE_MACHINE)

    @field_validator("operations")
    @classmethod
    def _known_and_distinct(cls, operations: list[str] | None) -> list[str] | None:
        for place, operation in enumerate(operations or ()):
            if not re.fullmatch(OPERATION_PATTERN, operation):
                directions, dtypes = ", ".join(VARIANTS), ", ".join(DTYPES)
                raise wrong_below(
                    place, operation, f"should be a direction ({directions}) and a type ({dtypes}), as in forward_bf16"
                )
        distinct(tuple(operations or ()))
        return operations


def check(config: Mapping[str, Any], where: str = "config") -> Config:
    """Return the typed configuration; a ``UserError`` has one line for each wrong field."""
    content = deepcopy(dict(config)) if isinstance(config, Mapping) else config
    if isinstance(content, dict) and content.keys() == {"tileseer"}:
        raise UserError(f'{where}: the configuration is below tileseer; write config: config["tileseer"] in the module')
    try:
        Config.model_validate(content, context={})
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            _read_as_yaml(content, fault["loc"], fault["input"])
    return validate_table(content, Config, where)


def _read_as_yaml(content: Any, place: Sequence[str | int], value: object) -> None:
    """Replace a wrong text by what YAML makes of it: of braces on its command line Snakemake makes texts alone."""
    with suppress(UserError, LookupError, TypeError):
        for part in place[:-1]:
            content = content[part]
        if isinstance(value, str) and content[place[-1]] == value:
            content[place[-1]] = parse_yaml(value, "")


def read_config_file(path: Path) -> dict[str, Any]:
    """Return a configuration; ``UserError`` if Snakemake would read it wrongly, or with a traceback, or run it."""
    content = read_json(path) if path.suffix == ".json" else read_yaml(path)
    if not isinstance(content, dict):
        raise UserError(f"{path}: should have fields such as arch: gfx950, but it is {shown(content)}")
    if TEMPLATE_KEY in content:
        raise UserError(f"{path}: {TEMPLATE_KEY} lets the file run code; remove it, and write plain YAML")
    return content
