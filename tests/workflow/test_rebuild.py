"""What an edit runs again: exactly what depends on it, and measured is only what is new."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess

import yaml
from small_workflow import TARGETS

from tileseer.data.dataset import Dataset
from tileseer.measure.device import STATUSES

DATASET = "results/datasets/gfx950/forward_bf16/pairs.parquet"
CHUNK_STAGES = ("headers", "compile", "support", "benchmark")
AFTER_DATASET = ("model", "serving", "evaluation", "publish", "report")
FROM_SUPPORT = {"support", "benchmark", "dataset", *AFTER_DATASET}
FROM_CONFIGS = {"configs", "headers", "compile", *FROM_SUPPORT}


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


def test_comments_and_new_time_stamps_do_nothing(copy):
    append(copy, "src/tileseer/core/errors.py", "\n# A comment.\n")
    append(copy, "workflow/scripts/model.py", '\n"""A text."""\n')
    for path in sorted(copy.folder.rglob("*")):
        if path.is_file() and ".snakemake" not in path.parts:
            os.utime(path)
    run = copy.make()
    assert "Nothing to be done" in run.output and not run.jobs


def test_a_new_machine_with_restored_results_does_what_changed(made, fresh):
    """As on CI: a fresh checkout, results out of a store with the time of unpacking, the profile for CI."""
    packed = subprocess.run(["tar", "c", "results", ".snakemake"], cwd=made[0].folder, check=True, capture_output=True)
    subprocess.run(["tar", "xm", "--no-same-owner"], cwd=fresh.folder, check=True, input=packed.stdout)
    profile = ("--workflow-profile", "profiles/ci", *TARGETS)
    assert not fresh.make("-n", *profile).planned
    fresh.edit("workflow/templates/report.html.j2", "</body>", "<!-- changed --></body>")
    assert set(fresh.make("-n", *profile).planned) == {"report"}


STATEMENT = "\nADDED = 1\n"
EDITS = {
    "core": ("src/tileseer/core/errors.py", STATEMENT, {"arch_specs", "problems", *FROM_CONFIGS}),
    "a feature": ("src/tileseer/libraries/ck_tile/features.py", STATEMENT, {*AFTER_DATASET}),
    "the worker on the GPU": ("src/tileseer/measure/harness/worker.py", STATEMENT, FROM_SUPPORT),
    "a table": ("config/ck_api.yaml", "# changed\n", FROM_CONFIGS - {"configs"}),
}


def test_an_edit_runs_what_uses_it(copy):
    for edit, (path, text, rules) in EDITS.items():
        before = copy.read(path)
        append(copy, path, text)
        assert set(copy.make("-n").planned) == rules, edit
        (copy.folder / path).write_bytes(before)


def test_where_the_output_is_the_same_the_next_call_has_nothing_to_do(copy):
    before = contents(copy)
    append(copy, "src/tileseer/libraries/ck_tile/rules.py", STATEMENT)
    run = copy.make()
    assert set(run.jobs) == FROM_CONFIGS and run.measured == 0 and contents(copy) == before
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


def test_where_something_is_on_this_machine_is_no_reason_to_run(copy):
    copy.configure(lock={"folder": str(copy.folder / "elsewhere")}, cache={"folder": "/nowhere", "max_gib": 1})
    assert not copy.make("-n").planned


def test_another_arch_is_built_beside(copy):
    run = copy.make("results/models/gfx942")
    assert run.jobs["arch_specs"] == run.jobs["problems"] == 0 and run.jobs["configs"] == 1
    assert "models:   results/models/gfx942 (simulated" in run.output and "results/models/gfx950" not in run.output
    assert json.loads(copy.read("results/models/gfx942/index.json"))["arch"] == "gfx942"
