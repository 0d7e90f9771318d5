"""What an edit runs again: exactly what depends on it, and measured is only what is new."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from small_workflow import TARGETS, Run

from tileseer.data.dataset import Dataset
from tileseer.measure.device import STATUSES

DATASET = "results/datasets/gfx950/forward_bf16/pairs.parquet"
CHUNK_STAGES = ("headers", "compile", "support", "benchmark")
AFTER_DATASET = ("model", "serving", "evaluation", "publish", "report")
FIRST_TO_LAST = ("configs", *CHUNK_STAGES, "dataset", *AFTER_DATASET)


def pairs(workflow):
    """Kernel, split-K and problem key of what was measured, and its status."""
    data = Dataset.read((workflow.folder / DATASET).parent)
    names = data.candidates[["kernel", "split_k"]].iloc[data.candidate].itertuples(index=False, name=None)
    keys = data.problems["problem_key"][data.problem]
    return {(*name, key): STATUSES[code] for name, key, code in zip(names, keys, data.status, strict=True)}


def contents(workflow):
    paths = [path for path in (workflow.folder / "results").rglob("[!.]*") if path.is_file()]
    kept = [path for path in paths if path.name not in ("provenance.json", "index.json")]
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}


def append(workflow, name, text):
    path = workflow.folder / name
    path.write_text(path.read_text() + text)


def test_the_first_run_makes_everything(made):
    workflow, run = made
    once = ("arch_specs", "configs", "problems", "dataset", *AFTER_DATASET)
    assert run.jobs == dict.fromkeys(once, 1) | dict.fromkeys(CHUNK_STAGES, 2)
    rows = pairs(workflow)
    assert run.measured == len(rows) > 100 and "ok" in rows.values()
    assert run.output.count("models:   results/models/gfx950 (simulated times of gfx950_mi355x)") == 1


def test_a_new_machine_with_restored_results_does_what_changed(made, fresh):
    """As on CI: a fresh checkout, results out of a store with the time of unpacking, the profile for CI."""
    packed = subprocess.run(["tar", "c", "results", ".snakemake"], cwd=made[0].folder, check=True, capture_output=True)
    subprocess.run(["tar", "xm", "--no-same-owner"], cwd=fresh.folder, check=True, input=packed.stdout)
    profile = ("--workflow-profile", "profiles/ci", *TARGETS)
    assert not fresh.make("-n", *profile).planned
    fresh.edit("workflow/templates/report.html.j2", "</body>", "<!-- changed --></body>")
    assert set(fresh.make("-n", *profile).planned) == {"report"}


STATEMENT = "\nADDED = 1\n"
PAGE = Path(__file__).parents[2] / "docs/internals/architecture.md"


def added(name, text):
    return lambda workflow: append(workflow, name, text)


def edited(name, old, new):
    return lambda workflow: workflow.edit(name, old, new)


def with_time(change, name, seconds):
    """Make a change of a file, and give it this time of change."""

    def do(workflow):
        change(workflow)
        os.utime(workflow.folder / name, (seconds, seconds))

    return do


def configured(**sections):
    return lambda workflow: workflow.configure(**sections)


def removed(name):
    return lambda workflow: shutil.rmtree(workflow.folder / name)


def with_environment(name, text):
    """Put a file into a folder where Python looks first, as another version of a package does."""

    def do(workflow):
        path = workflow.folder / "environment" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
        workflow.variables["PYTHONPATH"] = str(workflow.folder / "environment")

    return do


HARDWARE, API = "config/hardware.yaml", "config/ck_api.yaml"
FASTER = edited(HARDWARE, "hbm_tb_per_s: 8.0", "hbm_tb_per_s: 8.5")
CHANGES = {
    "times of change of all files, which are the same": lambda workflow: [
        os.utime(path) for path in workflow.folder.rglob("*") if path.is_file() and ".snakemake" not in path.parts
    ],
    "a comment or a docstring in `core`": added("src/tileseer/core/errors.py", '\n# A comment.\n"""A text."""\n'),
    "a statement in `core`": added("src/tileseer/core/errors.py", STATEMENT),
    "a rule of legal kernels (`libraries`)": added("src/tileseer/libraries/ck_tile/rules.py", STATEMENT),
    "the worker on the GPU (`measure/harness`)": added("src/tileseer/measure/harness/worker.py", STATEMENT),
    "a feature": added("src/tileseer/libraries/ck_tile/features.py", STATEMENT),
    "a script, `scripts/model.py`": added("workflow/scripts/model.py", STATEMENT),
    "a template of C++": added("workflow/templates/kernel.hpp.j2", "// changed\n"),
    "the template of the report": edited("workflow/templates/report.html.j2", "</body>", "<!-- changed --></body>"),
    "the driver (`workflow/native`), which no simulated GPU has": added("workflow/native/driver.hpp", "// changed\n"),
    "a comment in `config/hardware.yaml` or `config/ck_api.yaml`": lambda workflow: [
        append(workflow, name, "# changed\n") for name in (HARDWARE, API)
    ],
    "a number in `config/hardware.yaml`": FASTER,
    "the same in a file with an older time of change (`cp -p`, `rsync -a`, `tar x`)": with_time(FASTER, HARDWARE, 1e9),
    "a value in `config/ck_api.yaml`": edited(API, "pipelines:", "more: 1\npipelines:"),
    "a network of the problems": edited("config/problems/small.csv", "layer3,", "layer3b,"),
    "quotes, spaces and blank lines of the problems' CSV": edited("config/problems/small.csv", "layer3,", '"layer3", '),
    "the problems' CSV, older": with_time(
        edited("config/problems/small.csv", "layer3,", "layer3b,"), "config/problems/small.csv", 1e9
    ),
    "`model.num_leaves`": configured(model={"n_estimators": 10, "num_leaves": 5}),
    "`benchmark.seed`": configured(benchmark={"seed": 2}),
    "a comment in `config/config.yaml`; `cache`, `lock`: where things are": lambda workflow: (
        workflow.configure(lock={"folder": "/elsewhere"}, cache={"folder": "/nowhere", "max_gib": 1}),
        append(workflow, "config/config.yaml", "# changed\n"),
    ),
    "the version of pydantic": with_environment("pydantic-0.dist-info/METADATA", "Name: pydantic\nVersion: 0\n"),
    "the version of msgpack": with_environment("msgpack-0.dist-info/METADATA", "Name: msgpack\nVersion: 0\n"),
    "the version of lightgbm": with_environment("lightgbm-0.dist-info/METADATA", "Name: lightgbm\nVersion: 0\n"),
    "the version of Python": with_environment(
        "sitecustomize.py", "import platform\nplatform.python_version = lambda: '3.0'\n"
    ),
    "the folder of the models removed": removed("results/models"),
    "`.snakemake/` removed": removed(".snakemake"),
    "`results/` removed": removed("results"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_runs_what_the_table_says(copy, what):
    CHANGES[what](copy)
    if copy.variables:
        # Started for real: a fork would have the packages and the Python of its parent.
        output, _ = (process := copy.start("-n", *TARGETS)).communicate()
        run = Run(process.returncode, output)
        assert run.status == 0, output
    else:
        run = copy.make("-n")
    check_row(what, run)


RECORDED = {"a bit of a recorded table": 4e9, "a bit of a recorded table, in a file with an older time of change": 1e9}


def test_a_recorded_table_counts_by_its_bytes(copy):
    recorded = copy.folder / "mine/forward_bf16"
    shutil.copytree(copy.folder / "results/datasets/gfx950/forward_bf16", recorded)
    described = json.loads((recorded / "recording.json").read_text()) | {"arch": "gfx950_mine"}
    (recorded / "recording.json").unlink()
    (recorded.parent / "recording.json").write_text(json.dumps(described))
    copy.configure(
        replays={"gfx950_mine": "mine"},
        benchmark={"seed": 1, "products": dict.fromkeys(("gfx950", "gfx950_mine"), "gfx950_mi355x")},
    )
    targets = ("results/models/gfx950_mine", "results/reports/gfx950_mine.html")
    copy.make(*targets)
    pairs = recorded / "pairs.parquet"
    table = pq.read_table(pairs)
    pq.write_table(table.slice(0, table.num_rows - 1), pairs)
    for what, seconds in RECORDED.items():
        os.utime(pairs, (seconds, seconds))
        check_row(what, copy.make("-n", *targets))


def rows():
    """Return the rows of the table in the documentation."""
    return PAGE.read_text().partition("| change | stages that run |\n|---|---|\n")[2].partition("\n\n")[0].splitlines()


def check_row(what, run):
    row = f"| {what} | {stages(run.planned)} |"
    assert row in rows(), f"this is the row of {PAGE.name}:\n{row}"


def test_the_table_has_a_row_for_each_change():
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows()] == [*CHANGES, *RECORDED]


def stages(planned):
    """Return names of stages, three or more that follow each other by the first and the last."""
    order = ("arch_specs", "problems", *FIRST_TO_LAST)
    parts, rest = [], [name in planned for name in order]
    first = 0
    while first < len(order):
        last = first
        while last < len(order) and rest[last]:
            last += 1
        names = order[first:last]
        parts += [f"{names[0]} to {names[-1]}"] if len(names) > 2 else names
        first = last + 1
    assert planned.keys() <= {*order}
    return "all" if len(planned) == len(order) else ", ".join(parts) or "none"


def test_where_the_output_is_the_same_the_next_call_has_nothing_to_do(copy):
    before = contents(copy)
    append(copy, "src/tileseer/libraries/ck_tile/rules.py", STATEMENT)
    run = copy.make()
    assert set(run.jobs) == {*FIRST_TO_LAST} and run.measured == 0 and contents(copy) == before
    assert not copy.make().jobs


def test_one_more_tile_and_problem_measure_only_their_pairs_and_one_less_leaves_no_row(copy):
    before = pairs(copy)
    path = copy.folder / "config/rule_sets/small.yaml"
    rules = yaml.safe_load(path.read_text())
    rules["tiles"].append({"tile": [64, 64, 64], "wave": [4, 1, 1], "warp_tile": [16, 16, 16], "vectors": [4, 8, 8]})
    path.write_text(yaml.safe_dump(rules))
    append(
        copy, "config/problems/small.yaml", "- {name: one more, choices: {C: [96], K: [224], 'Hi,Wi': [[23, 29]]}}\n"
    )
    run = copy.make(DATASET)
    after = pairs(copy)
    new = set(after) - set(before)
    assert set(before.items()) <= set(after.items())
    assert len({key for _, _, key in new} - {key for _, _, key in before}) == 1
    assert run.measured == len(new) > 0
    rules["tiles"] = rules["tiles"][1:]
    path.write_text(yaml.safe_dump(rules))
    run = copy.make(DATASET)
    assert run.measured == 0 and {kernel for kernel, _, _ in pairs(copy)} < {kernel for kernel, _, _ in after}


def test_another_seed_measures_everything_again_and_going_back_measures_nothing(copy):
    before = copy.read(DATASET)
    copy.configure(benchmark={"seed": 2})
    run = copy.make(DATASET)
    assert set(run.jobs) == {"benchmark", "dataset"} and run.measured == len(pairs(copy))
    assert copy.read(DATASET) != before
    copy.configure(benchmark={"seed": 1})
    assert copy.make(DATASET).measured == 0 and copy.read(DATASET) == before


def test_another_arch_is_built_beside(copy):
    run = copy.make("results/models/gfx942")
    assert run.jobs["arch_specs"] == run.jobs["problems"] == 0 and run.jobs["configs"] == 1
    assert "models:   results/models/gfx942 (simulated" in run.output and "results/models/gfx950" not in run.output
    assert json.loads(copy.read("results/models/gfx942/index.json"))["arch"] == "gfx942"


def test_a_trial_leaves_the_models_and_the_last_lines_speak_of_what_was_made(copy):
    kept = ("results/models/gfx950/index.json", "results/reports/gfx950.html")
    before = [copy.read(name) for name in kept]
    copy.configure(publish={"name": "try_1"}, model={"seed": 5})
    run = copy.make("results/models/gfx950-try_1", "results/reports/gfx950-try_1.html")
    assert [copy.read(name) for name in kept] == before
    assert "models:   results/models/gfx950-try_1 (simulated" in run.output
    assert "whose models are results/models/gfx950-try_1: make these" in copy.refuse("results/models/gfx950")
    copy.configure(publish={}, model={"seed": 6})
    run = copy.make("results/reports/gfx950.html")
    assert "models:   not part of this run; tileseer run --arch gfx950 (simulated" in run.output
