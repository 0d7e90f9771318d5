"""The stages of a very small workflow, run one by one in this process: for tests of what they make of their inputs."""

from __future__ import annotations

import json
import runpy
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from tileseer.problems.problem import DIMS

ROOT = Path(__file__).parents[2]
TABLES = ("arch_specs.json", "hardware.yaml", "simulated_device.yaml", "ck_api.yaml")
RULES, LAYERS, GENERATOR = "config/rules.yaml", "config/layers.csv", "config/generator.yaml"
CONFIGS = {"rule_set": RULES, "chunks": 1}
PROBLEMS = {
    "networks": LAYERS, "validation": LAYERS, "training": [GENERATOR], "design": 0, "training_layers": 0,
    "validation_problems": 0,
}  # fmt: skip
MODEL = {
    "overrides": {
        "n_estimators": 2, "num_leaves": 4,
    }
}  # fmt: skip
PRODUCT = "--product gfx950_mi355x --hardware config/hardware.yaml"
OPERATION = "--operation forward_bf16"


@dataclass(frozen=True)
class Stage:
    """A script: its words, the files that it reads and those that it writes; ``made`` are files of earlier stages."""

    name: str
    words: str
    tables: tuple[str, ...]
    made: tuple[str, ...]
    outputs: tuple[str, ...]
    settings: dict | None = None
    """Of the section that is named as the stage is."""

    def run(self) -> int:
        """Run it in the current folder."""
        settings = [] if self.settings is None else ["--settings", json.dumps({self.name: self.settings})]
        return main_of(self.name)([*self.words.format(root=ROOT, here=Path.cwd()).split(), *settings])


@cache
def main_of(script: str) -> Callable[[list[str]], int]:
    """Return the function of a script."""
    return runpy.run_path(str(ROOT / f"workflow/scripts/{script}.py"))["main"]


STAGES = (
    Stage(
        "arch_specs",
        "--source config/arch_specs.json --template {root}/workflow/templates/arch_specs.py.j2 "
        "--json made/specs.json --python made/specs.py",
        ("config/arch_specs.json",), (), ("made/specs.json", "made/specs.py"),
    ),
    Stage(
        "configs",
        f"--arch gfx950 {OPERATION} --arch-specs made/specs.json --tables {{root}}/config/rule_sets "
        "--kernels made/configs.parquet --rejected made/rejected.tsv",
        (RULES,), ("made/specs.json",), ("made/configs.parquet", "made/rejected.tsv"), CONFIGS,
    ),
    Stage(
        "problems",
        f"{OPERATION} --ndims 2 3 --uses made/uses.parquet --problems made/problems.parquet",
        (LAYERS, GENERATOR), (), ("made/uses.parquet", "made/problems.parquet"), PROBLEMS,
    ),
    Stage(
        "headers",
        "--arch gfx950 --chunk 0 --configs made/configs.parquet --templates {root}/workflow/templates "
        "--api config/ck_api.yaml --bundle made/headers.tar",
        ("config/ck_api.yaml",), ("made/configs.parquet",), ("made/headers.tar",),
    ),
    Stage(
        "compile",
        f"--arch gfx950 --chunk 0 --configs made/configs.parquet --headers made/headers.tar {PRODUCT} "
        "--coefficients config/simulated_device.yaml --native {root}/workflow/native --build made/build.parquet",
        ("config/hardware.yaml", "config/simulated_device.yaml"), ("made/configs.parquet", "made/headers.tar"),
        ("made/build.parquet",), {"toolchain": "none"},
    ),
    Stage(
        "support",
        f"--arch gfx950 {OPERATION} --build made/build.parquet --problems made/problems.parquet {PRODUCT} "
        "--support made/support.parquet",
        ("config/hardware.yaml",), ("made/build.parquet", "made/problems.parquet"), ("made/support.parquet",),
    ),
    Stage(
        "aliases",
        "--build made/build.parquet --support made/support.parquet --aliases made/aliases.parquet",
        (), ("made/build.parquet", "made/support.parquet"), ("made/aliases.parquet",),
    ),
    Stage(
        "benchmark",
        f"--arch gfx950 {OPERATION} --chunk 0 --support made/support.parquet --build made/build.parquet "
        f"--problems made/problems.parquet {PRODUCT} --coefficients config/simulated_device.yaml "
        '--settings {{"lock":{{"folder":"{here}/locks"}}}} --journal journals/0.csv --again journals/again/0.csv '
        "--receipt made/receipt.json",
        ("config/hardware.yaml", "config/simulated_device.yaml"),
        ("made/support.parquet", "made/build.parquet", "made/problems.parquet", "journals/0.1.parquet"),
        ("made/receipt.json",),
    ),
    Stage(
        "dataset",
        f"--arch gfx950 {OPERATION} --problems made/problems.parquet --build made/build.parquet "
        "--support made/support.parquet --receipts made/receipt.json --dataset made/dataset",
        (),
        (
            "made/problems.parquet", "made/build.parquet", "made/support.parquet", "made/receipt.json",
            "journals/0.1.parquet",
        ),
        ("made/dataset",),
    ),
    Stage(
        "model",
        f"--dataset made/dataset {PRODUCT} --coefficients config/simulated_device.yaml --output made/training",
        ("config/hardware.yaml", "config/simulated_device.yaml"), ("made/dataset",), ("made/training",), MODEL,
    ),
    Stage(
        "serving",
        "--dataset made/dataset --training made/training --api config/ck_api.yaml "
        "--template {root}/workflow/templates/serving/selector.hpp.j2 --coefficients config/simulated_device.yaml "
        "--output made/serving",
        ("config/ck_api.yaml", "config/simulated_device.yaml"),
        ("made/dataset", "made/training"),
        ("made/serving",),
    ),
    Stage(
        "evaluation",
        "--dataset made/dataset --training made/training --serving made/serving "
        "--coefficients config/simulated_device.yaml --uses made/uses.parquet --evaluation made/evaluation.json "
        "--layers made/evaluation.parquet",
        ("config/simulated_device.yaml",),
        ("made/dataset", "made/training", "made/serving", "made/uses.parquet"),
        ("made/evaluation.json", "made/evaluation.parquet"),
    ),
    Stage(
        "publish",
        "--training made/training --evaluation made/evaluation.json --serving made/serving --arch gfx950 "
        "--operations forward_bf16 --made-from made/dataset/problems.parquet made/problems.parquet --workflow {root} "
        "--template {root}/workflow/templates/models.md.j2 --models made/models",
        (), ("made/training", "made/evaluation.json", "made/evaluation.parquet", "made/serving", "made/dataset"),
        ("made/models",),
    ),
    Stage(
        "report",
        "--dataset made/dataset --kernels made/serving/kernels.json --evaluation made/evaluation.json --call tileseer "
        "--template {root}/workflow/templates/report.html.j2 --page made/report.html --layers made/layers.csv",
        (), ("made/evaluation.json", "made/evaluation.parquet", "made/dataset"),
        ("made/report.html", "made/layers.csv"),
    ),
)  # fmt: skip


def lay_out(folder: Path) -> None:
    """Write the tables that the stages read."""
    (folder / "config").mkdir(parents=True)
    for name in TABLES:
        shutil.copy(ROOT / "config" / name, folder / "config" / name)
    rules = yaml.safe_load((ROOT / "config/rule_sets/sweep.yaml").read_text())
    rules["tiles"] = rules["tiles"][:1]
    rules["variants"]["forward"]["options"] = rules["variants"]["forward"]["options"][2:3]
    (folder / RULES).write_text(yaml.safe_dump(rules))
    (folder / LAYERS).write_text(_layers())
    sections = yaml.safe_load((ROOT / "config/problems/training.yaml").read_text())["sections"]
    sections = [section | {"count": 24} for section in sections if section["name"] == "dense 3x3"]
    (folder / GENERATOR).write_text(yaml.safe_dump({"sections": sections}))


def _layers() -> str:
    plain = {name: 0 if name.startswith("pad") else 1 for name in DIMS} | {"N": 2, "Hi": 14, "Wi": 14}
    rows = [plain | {"C": 64 << i % 3, "K": 64 << i // 3, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1} for i in range(6)]
    lines = [",".join(("network", "run", "layer", "occurrences", *DIMS))]
    lines += [f"net{i % 2},run,layer{i},{1 + i % 2},{','.join(map(str, row.values()))}" for i, row in enumerate(rows)]
    return "\n".join(lines) + "\n"
