"""The page on extending works: its snippets, put where it says, give a new arch and a new pipeline."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/CONTRIBUTING.md"
NUMBERED = re.compile(r"^\d\. `(?P<file>[\w./]+)`.*?^ +```\w+\n(?P<snippet>.*?)^ +```$", re.MULTILINE | re.DOTALL)
PLACES = {
    "src/tileseer/libraries/ck_tile/pipelines.py": r"(?ms)^(PIPELINE_FACTS.*?)(?=^}$)",
    "config/arch_specs.json": r"(\"pipelines\": \[\n)",
    "config/ck_api.yaml": r"(?m)(^pipelines:\n)",
    "config/simulated_device.yaml": r"(?m)(^aliases:[^\n]*\n)",
    "config/rule_sets/sweep.yaml": r"(?m)(^  forward:\n    options:\n)",
}
"""The text before the place that the section on pipelines names in words."""

RULES = "config/rule_sets/sweep.yaml"
EMIT = f"codegen --arch gfx950 --rule-set {RULES} --variant forward --dtype bf16 --output out".split()


def snippets(heading):
    """Return file to snippet of a section's numbered steps, without the list's indentation."""
    text = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return {found["file"]: re.sub(r"(?m)^ {3}", "", found["snippet"]) for found in NUMBERED.finditer(text)}


@pytest.fixture
def project(tmp_path):
    """Return a copy of what the pages change, and a function that runs the command there."""
    for folder in ("src/tileseer", "config", "workflow/templates"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))

    def tileseer(*options):
        command = [sys.executable, "-m", "tileseer.cli.main", *options]
        environment = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return tmp_path, tileseer


def put(path, pattern, snippet):
    text = path.read_text()
    changed, count = re.subn(pattern, lambda found: found[0] + snippet, text, count=1)
    assert count == 1, path
    path.write_text(changed)


def test_a_new_arch_is_json_only(project):
    folder, tileseer = project
    (snippet,) = [text for file, text in snippets("Add an arch").items() if file == "config/arch_specs.json"]
    (name,) = re.findall(r"^\"(gfx\w+)\"", snippet)
    assert name in tileseer("codegen", "--arch", name, "--list-names").stderr
    put(folder / "config/arch_specs.json", r"(\"archs\": \{)", snippet)
    done = tileseer(
        "codegen", "--arch", name, "--rule-set", "full", "--dtype", "bf16", "--ndim", "2", "--output", "out"
    )
    assert done.returncode == 0, done.stderr
    headers = list((folder / "out" / name).glob("grouped_conv_*.hpp"))
    assert len(headers) > 100
    assert all(f'TargetArch = "{name}"' in header.read_text() for header in headers[:5])
    entry = json.loads("{" + snippet.rstrip().rstrip(",") + "}")[name]
    waves = {"x".join(map(str, wave)) for wave in entry["waves"]}
    gemm = [header.stem for header in headers if "depthwise" not in header.stem]
    assert {re.search(r"wave_\d+x\d+x\d+_(\d+x\d+x\d+)_", stem)[1] for stem in gemm} <= waves


def test_a_new_pipeline_is_a_row_in_each_table(project):
    folder, tileseer = project
    steps = snippets("Add a tile or a pipeline")
    assert set(steps) == set(PLACES)
    for file, snippet in steps.items():
        # YAML keeps the indentation of a mapping's rows; the page shows it below the list's own.
        put(folder / file, PLACES[file], snippet)
    done = tileseer(*EMIT)
    assert done.returncode == 0, done.stderr
    header, *others = (folder / "out/gfx950").glob("grouped_conv_*_2d_ring_v1*.hpp")
    assert others
    text = header.read_text()
    assert "GemmPipeline::RING_V1;" in text and "GemmPipelineAgBgCrRingV1<PipelineProblem" in text
    assert re.search(r"kBlockPerCu += 1;", text)
    load = "from tileseer.libraries.costs.coefficients import load_coefficients as f; f('config/simulated_device.yaml')"
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    assert subprocess.run([sys.executable, "-c", load], cwd=folder, env=environment, check=False).returncode == 0


@pytest.mark.parametrize(
    "file", ["src/tileseer/libraries/ck_tile/pipelines.py", "config/arch_specs.json", "config/ck_api.yaml"]
)
def test_a_row_that_was_forgotten_is_named(project, file):
    folder, tileseer = project
    for other, snippet in snippets("Add a tile or a pipeline").items():
        if other != file:
            put(folder / other, PLACES[other], snippet)
    done = tileseer(*EMIT)
    assert done.returncode == 2 and "ring_v1" in done.stderr
