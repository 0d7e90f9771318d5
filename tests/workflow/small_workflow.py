"""A small copy of the workflow to run for real: one operation, a few kernels and problems, a small model."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import warm_python
import yaml
from fake_machine import install_compiler

from tileseer.learn import model_files
from tileseer.problems.problem import DIMS

ROOT = Path(__file__).parents[2]
TOOLS = Path(sys.executable).parent
SNAKEMAKE = str(TOOLS / "snakemake")
PARTS = ("Snakefile", "config", "envs", "profiles", "src", "workflow", "pyproject.toml")
TARGETS = ("results/models/gfx950", "results/reports/gfx950.html")
RESULTS = (
    "results/datasets/gfx950/forward_bf16/pairs.parquet",
    "results/training/gfx950/forward_bf16/model_tflops.lgbm",
    "results/evaluation/gfx950/forward_bf16.json",
    "results/reports/gfx950.html",
)

CONFIG = {
    "arch": "gfx950",
    "operations": ["forward_bf16"],
    "configs": {"rule_set": "config/rule_sets/small.yaml", "chunks": 2},
    "problems": {
        "networks": "config/problems/small.csv",
        "design": 0,
        "training_layers": 0,
        "training": ["config/problems/small.yaml"],
        "validation": "config/problems/small.csv",
        "validation_problems": 0,
    },
    "benchmark": {"seed": 1},
    "model": {"n_estimators": 10, "num_leaves": 7},
}


def small_config(folder: Path) -> dict[str, object]:
    """Return the configuration of a run in ``folder``, whose locks are its own."""
    return CONFIG | {"lock": {"folder": str(folder / "locks")}}


def layer_table(layers: Iterable[tuple[str, str, int, Mapping[str, int]]]) -> str:
    """Return a table of layers in the form that a user writes: network, run, occurrences and dimensions of each."""
    lines = [",".join(("network", "run", "layer", "occurrences", *DIMS))]
    for number, (network, run, occurrences, given) in enumerate(layers):
        dims = dict.fromkeys(DIMS, 1) | dict.fromkeys(("pad_d", "pad_h", "pad_w"), 0) | given
        lines.append(",".join(map(str, (network, run, f"layer{number}", occurrences, *(dims[name] for name in DIMS)))))
    return "\n".join(lines) + "\n"


def square(c: int, k: int, size: int, f: int) -> dict[str, int]:
    """Return the dimensions of a layer with square images and filters."""
    return {"C": c, "K": k, "Hi": size, "Wi": size, "Y": f, "X": f, "pad_h": f // 2, "pad_w": f // 2}


def _small_networks() -> str:
    """Return a table of layers of two networks, one with two runs."""
    shapes = [(c, k, size, f) for c, k in ((64, 64), (64, 128), (128, 256)) for size in (14, 28) for f in (1, 3, 5)]
    rows = []
    for number, shape in enumerate(shapes):
        dims = square(*shape) | {"N": 2 + number % 3}
        if number % 6 == 0:
            dims |= {"Di": 4, "Z": 3, "pad_d": 1, "N": 1}
        rows.append(("images" if number % 6 else "volumes", f"run {number % 2}", 1 + number % 4, dims))
    return layer_table(rows)


@dataclass
class Run:
    """What one call of Snakemake did."""

    status: int
    output: str
    measured: int = 0
    """Pairs that its benchmark jobs measured."""

    @property
    def jobs(self) -> Counter:
        """How many jobs of each rule ran to their end."""
        return Counter(re.findall(r"^Finished jobid: \d+ \(Rule: (\w+)\)", self.output, re.M))

    @property
    def planned(self) -> Counter:
        """How many jobs of each rule a dry run lists; none if nothing is to be done."""
        table = self.output.partition("Job stats:")[2].partition("\ntotal")[0]
        counts = re.findall(r"^(\w+) +(\d+)$", table, re.M)
        return Counter({name: int(count) for name, count in counts if name != "all"})


class Workflow:
    """A folder with a workflow in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables: dict[str, str] = {}

    def environment(self) -> dict[str, str]:
        """As a user has it, with a cache of its own."""
        return environment() | {"XDG_CACHE_HOME": str(self.folder / "cache")} | self.variables

    def command(self, *arguments: str) -> list[str]:
        return [SNAKEMAKE, "--cores", "2", *arguments]

    def start(self, *arguments: str, variables: Mapping[str, str] | None = None) -> subprocess.Popen:
        """Start Snakemake in a process group of its own, with more in its environment."""
        return subprocess.Popen(
            self.command(*(arguments or TARGETS)), cwd=self.folder, env=self.environment() | dict(variables or {}),
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def run(self, *arguments: str) -> Run:
        """Call Snakemake and wait for its end."""
        command = self.command(*(arguments or TARGETS))
        together = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        begun = time.time()
        ended = warm_python.run(command, self.folder, self.environment(), timeout=300, **together)
        logs = [path for path in self.folder.glob("logs/*/*/benchmark/*.log") if path.stat().st_mtime >= begun - 0.1]
        counts = [re.search(r"([\d,]+) pairs measured", path.read_text()) for path in logs]
        return Run(ended.returncode, ended.stdout, sum(int(found[1].replace(",", "")) for found in counts if found))

    def make(self, *arguments: str) -> Run:
        """Run and insist on success."""
        run = self.run(*arguments)
        assert run.status == 0, run.output
        return run

    def refuse(self, *arguments: str, runs_jobs: bool = False) -> str:
        """Run and insist on a failure with a message, before the first job or in one; return what was printed."""
        run = self.run(*arguments)
        assert run.status != 0 and "Traceback (most recent call last)" not in run.output, run.output
        assert runs_jobs or not run.jobs, run.output
        return run.output

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.folder / name
        text = path.read_text()
        assert old in text, f"{name} does not hold {old!r}"
        path.write_text(text.replace(old, new, 1))

    def configure(self, **sections) -> None:
        path = self.folder / "config/config.yaml"
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | sections))

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()


def hashes(workflow: Workflow) -> dict[str, str]:
    """Return the hashes of what runs of the same settings have alike, wherever they are."""
    bundles = sorted((workflow.folder / "results/headers").rglob("*.tar"))
    files = [*bundles, *(workflow.folder / name for name in RESULTS)]
    models = dict(model_files.read_index(workflow.folder / "results/models/gfx950").sha256)
    # It has the folder of the locks, and the report its digest.
    del models[model_files.PROVENANCE]
    contents = {path.relative_to(workflow.folder).as_posix(): path.read_bytes() for path in files}
    contents = {name: re.sub(rb"settings [0-9a-f]{12}", b"settings", text) for name, text in contents.items()}
    return models | {name: hashlib.sha256(text).hexdigest() for name, text in contents.items()}


def tileseer(workflow: Workflow, *words: str) -> subprocess.CompletedProcess[str]:
    """Call the command in a workflow's folder, without a terminal."""
    command = [str(TOOLS / "tileseer"), *words]
    return warm_python.run(command, workflow.folder, workflow.environment(), capture_output=True)


def environment() -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SNAKEMAKE", "TILESEER"))
    }
    return kept | {"PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}"}


def lay_out(folder: Path) -> Workflow:
    """Copy the workflow into ``folder`` and make it small."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            # With its byte code, where there is some: it is good as long as the time stamps are.
            shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("*.egg-info"))
        else:
            shutil.copy2(source, folder / part)
    rules = yaml.safe_load((ROOT / "config/rule_sets/sweep.yaml").read_text())
    rules["tiles"] = rules["tiles"][:2]
    rules["variants"]["forward"]["options"] = rules["variants"]["forward"]["options"][2:4]
    (folder / "config/rule_sets/small.yaml").write_text(yaml.safe_dump(rules))
    sections = yaml.safe_load((ROOT / "config/problems/training.yaml").read_text())["sections"]
    wanted = [section | {"count": 12} for section in sections if section["name"] in ("dense 3x3", "volumes 3x3x3")]
    (folder / "config/problems/small.yaml").write_text(yaml.safe_dump({"sections": wanted}))
    (folder / "config/problems/small.csv").write_text(_small_networks())
    (folder / "config/config.yaml").write_text(yaml.safe_dump(small_config(folder)))
    return Workflow(folder)


def write_program(path: Path, source: str) -> Path:
    """Write a Python program that can be called."""
    path.write_text(f"#!{sys.executable}\n{source}")
    path.chmod(0o755)
    return path


def with_few_problems(workflow: Workflow, **tables: list[tuple[int, ...]]) -> dict[str, object]:
    """Write the tables ``train`` and ``judge`` of layers that a host computes; return the section that names them."""
    for name, shapes in tables.items():
        rows = [("net", f"run {number % 2}", 1, square(*shape)) for number, shape in enumerate(shapes)]
        (workflow.folder / f"config/problems/{name}.csv").write_text(layer_table(rows))
    train, judge = "config/problems/train.csv", "config/problems/judge.csv"
    numbers = {"design": 0, "training_layers": 0, "validation_problems": 0}
    return {"networks": train, "training": [train], "validation": judge} | numbers


def with_fake_compiler(workflow: Workflow, folder: Path) -> Path:
    """Configure the workflow to compile with fake_hipcc.py and its faulty_hipcc.py; kernels of pipeline compv4 fail."""
    folder.mkdir()
    compiler = folder / "hipcc"
    install_compiler(compiler, "faulty_hipcc")
    (folder / "version").write_text("fake hipcc version 1")
    (folder / "fail").write_text("COMPUTE_V4")
    tree = folder / "ck/include/ck_tile/ops/grouped_convolution/utils/grouped_convolution_utils.hpp"
    tree.parent.mkdir(parents=True)
    tree.write_text("struct FixedGemmParams;")
    workflow.configure(
        compile={"toolchain": "hipcc", "compiler": str(compiler)},
        ck={"root": str(folder / "ck")},
        cache={"folder": str(folder / "cache")},
    )
    return folder
