"""What ``tileseer ship`` writes for every library: names, figures, and what picks among the kernels."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tileseer.core import documents, places
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.core.tables import read_yaml_table
from tileseer.dataset.dataset import Dataset
from tileseer.gpus.arch import ArchSpecs
from tileseer.gpus.hardware import target
from tileseer.kernels.ck_tile.upstream import builder_set
from tileseer.kernels.ck_tile.upstream.builder_lines import BuilderRules
from tileseer.kernels.libraries import parse_kernels
from tileseer.learn import model_files
from tileseer.learn.model import Model
from tileseer.serve import serving

LIST = "kernels.txt"
FIGURES = "figures.json"
INSTANCES = "instances"


def refuse_used(folder: Path) -> None:
    """Raise a ``UserError`` for a folder with anything in it, which would be built with this set."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"--output: {folder} exists and is not empty; delete it or name another folder")


def write_selector(folder: Path, measurements: Dataset, model: Model, threads: int) -> None:
    """Write into ``folder`` what picks among the kernels of a model."""
    template = places.workflow_folder() / "workflow/templates/serving/selector.hpp.j2"
    text = serving.header_of(measurements, model, template, threads)
    folder.mkdir(parents=True)
    write_text(folder / model_files.SELECTOR, text)


def write_names(folder: Path, names: Sequence[str]) -> None:
    """Write the names of the kernels of all operations."""
    write_text(folder / LIST, "".join(f"{name}\n" for name in sorted(names)))


def write_instances(folder: Path, arch: str, names: Sequence[str]) -> None:
    """Write the lines of the reference's instance builder for kernels, if it builds such kernels."""
    own, kernels = places.workflow_folder(), parse_kernels(sorted(names))
    rules = read_yaml_table(own / "config/rule_sets/builder.yaml", BuilderRules)
    specs = ArchSpecs.load(own / "config/arch_specs.json")
    lines, without = builder_set.native_files(kernels, target(arch), rules, specs)
    if lines:
        lines["without.txt"] = "".join(f"{name}\n" for name in without)
    for path, text in lines.items():
        (folder / INSTANCES / path).parent.mkdir(parents=True, exist_ok=True)
        write_text(folder / INSTANCES / path, text)


def write_figures(folder: Path, figures: Mapping[str, Any]) -> None:
    """Write what the set of each operation loses and costs."""
    write_text(folder / FIGURES, documents.json_text(figures))
