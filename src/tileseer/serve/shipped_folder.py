"""The folder that ``tileseer ship`` leaves: sources of a kernel set, a build list, and what picks among the kernels."""

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
from tileseer.kernels.emission import EMITTERS
from tileseer.kernels.registry import family_of_arch
from tileseer.learn import model_files
from tileseer.learn.model import Model
from tileseer.serve import serving

LIST = "kernels.txt"
CMAKE = "kernels.cmake"
FIGURES = "figures.json"
SOURCES = "kernels"
INSTANCES = "instances"


def refuse_used(folder: Path) -> None:
    """``UserError`` for a folder with anything in it: files of another set would be built with these."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"--output: {folder} exists and is not empty; delete it or name another folder")


def write_selector(folder: Path, measurements: Dataset, model: Model, threads: int) -> None:
    """Write into ``folder`` what picks among the kernels of a model."""
    template = places.workflow_folder() / "workflow/templates/serving/selector.hpp.j2"
    text = serving.header_of(measurements, model, template, threads)
    folder.mkdir(parents=True)
    write_text(folder / model_files.SELECTOR, text, sealed=True)


def write_sources(folder: Path, arch: str, names: Sequence[str], level: str) -> None:
    """Write the kernels of all operations as sources with their registration, if their library is compiled here.

    ``level`` is that of the library's API; empty for the newest.
    """
    family, own = family_of_arch(arch), places.workflow_folder()
    every = sorted(names)
    write_text(folder / LIST, "".join(f"{name}\n" for name in every))
    if family.name not in EMITTERS:
        return
    kernels = [family.kernel.parse(name) for name in every]
    emitter = EMITTERS[family.name](own / "workflow/templates", own / "config/ck_api.yaml", level)
    texts = emitter.files(kernels, target(arch)) | emitter.collection_files(kernels, target(arch))
    rules = read_yaml_table(own / "config/rule_sets/builder.yaml", BuilderRules)
    specs = ArchSpecs.load(own / "config/arch_specs.json")
    lines, without = builder_set.native_files(kernels, target(arch), rules, specs)
    if lines:
        lines["without.txt"] = "".join(f"{name}\n" for name in without)
    for below, files in ((SOURCES, texts), (INSTANCES, lines)):
        for path, text in files.items():
            (folder / below / path).parent.mkdir(parents=True, exist_ok=True)
            write_text(folder / below / path, text)
    units = [
        f"${{CMAKE_CURRENT_LIST_DIR}}/{SOURCES}/{path}" for path in sorted(texts) if path.endswith((".cpp", ".cu"))
    ]
    write_text(
        folder / CMAKE,
        "# include() this file and add the sources to your library.\nset(TILESEER_KERNEL_SOURCES\n"
        + "".join(f'    "{unit}"\n' for unit in units)
        + f')\nset(TILESEER_KERNEL_INCLUDE "${{CMAKE_CURRENT_LIST_DIR}}/{SOURCES}")\n',
    )


def write_figures(folder: Path, figures: Mapping[str, Any]) -> None:
    """Write what the set of each operation loses and costs."""
    write_text(folder / FIGURES, documents.json_text(figures))
