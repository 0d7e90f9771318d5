"""What an edit rebuilds: exactly what depends on it, down to the pair."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pyarrow.parquet as pq
import yaml
from small_workflow import TARGETS

DATASET = "results/datasets/gfx950/forward_bf16.parquet"
CHUNK_STAGES = ("headers", "compile", "support", "benchmark")
AFTER_DATASET = {"model": 1, "validation": 1, "serving": 1, "report": 1}


def pairs(workflow):
    table = pq.read_table(workflow.folder / DATASET)
    rows = zip(*(table[name].to_pylist() for name in ("kernel", "split_k", "problem_key", "status")), strict=True)
    return {row[:3]: row[3] for row in rows}


def measurable(rows):
    return {pair for pair, status in rows.items() if status != "unsupported"}


def test_the_first_run_makes_everything(made):
    workflow, run = made
    chunks = len(workflow.read("results/configs/gfx950/forward_bf16.plan.tsv").splitlines()) - 1
    assert chunks >= 2
    expected = {"arch_specs": 1, "configs": 1, "problems": 1, "dataset": 1, "recorded": 1, **AFTER_DATASET}
    assert run.computed == expected | dict.fromkeys(CHUNK_STAGES, chunks)
    assert run.jobs - run.computed == {"publish": 1}
    rows = pairs(workflow)
    assert run.measured == len(measurable(rows)) > 100
    assert set(rows.values()) >= {"ok", "unsupported"}


def test_nothing_changed_and_new_time_stamps_do_nothing(copy):
    run = copy.make()
    assert "Nothing to be done" in run.output and not run.jobs
    for path in sorted(copy.folder.rglob("*")):
        if path.is_file() and ".snakemake" not in path.parts:
            os.utime(path)
    assert not copy.make().jobs


def test_a_change_is_noticed_where_results_have_newer_time_stamps(copy):
    """As when results come out of a store on a new machine; another arch in the table leaves this one alone."""
    table = copy.folder / "config/arch_specs.json"
    specs = json.loads(table.read_text())
    specs["archs"]["gfx959"] = specs["archs"]["gfx950"]
    table.write_text(json.dumps(specs, indent=3))
    copy.edit("workflow/scripts/arch_specs.py", "specs = ", "assert json\n    specs = ")
    for path in (table, copy.folder / "workflow/scripts/arch_specs.py"):
        os.utime(path, (0, 0))
    for path in sorted(copy.folder.glob("results/**/*")):
        os.utime(path, (4e9, 4e9))
    assert copy.make().computed == {"arch_specs": 1}
    assert not copy.make().jobs


def test_a_new_machine_with_restored_results_does_what_changed(made, fresh):
    """As on CI: a fresh checkout, results out of a store with the time of unpacking, the profile for CI."""
    assert fresh.folder != made[0].folder
    packed = subprocess.run(["tar", "c", "results", ".snakemake"], cwd=made[0].folder, check=True, capture_output=True)
    subprocess.run(["tar", "xm", "--no-same-owner"], cwd=fresh.folder, check=True, input=packed.stdout)
    profile = ("--workflow-profile", "profiles/ci", *TARGETS)
    assert not fresh.make(*profile).jobs
    fresh.edit("workflow/templates/report.html.j2", "</body>", "<!-- changed --></body>")
    assert fresh.make(*profile).computed == {"report": 1}


def test_one_more_tile_measures_only_its_pairs(copy):
    before = pairs(copy)
    path = copy.folder / "config/rule_sets/small.yaml"
    rules = yaml.safe_load(path.read_text())
    rules["tiles"].append({"tile": [64, 64, 64], "wave": [4, 1, 1], "warp_tile": [16, 16, 16], "vectors": [4, 8, 8]})
    path.write_text(yaml.safe_dump(rules))
    run = copy.make()
    after = pairs(copy)
    new = measurable(after) - measurable(before)
    assert set(before.items()) <= set(after.items())
    assert new and all("_64x64x64_" in kernel for kernel, _, _ in new)
    assert run.measured == len(new)
    assert run.computed["benchmark"] == run.computed["headers"] > 0
    assert set(run.computed) == {"configs", *CHUNK_STAGES, "dataset", *AFTER_DATASET}


def test_one_tile_less_measures_nothing_and_leaves_no_row(copy):
    path = copy.folder / "config/rule_sets/small.yaml"
    rules = yaml.safe_load(path.read_text())
    gone = "x".join(str(size) for size in rules["tiles"].pop()["tile"])
    path.write_text(yaml.safe_dump(rules))
    # An upgrade besides: that these stages change is known at once, that the dataset does, only when it is made.
    for module in ("learn/boosting.py", "learn/validation.py"):
        copy.edit(f"src/tileseer/{module}", '"""', '"""Of a later release. ')
    run = copy.make()
    assert run.measured == 0
    assert not any(f"_{gone}_" in kernel for kernel, _, _ in pairs(copy))
    assert run.finished.index("dataset") < run.finished.index("model") < run.finished.index("validation")
    assert all(run.computed[stage] == 1 for stage in ("dataset", *AFTER_DATASET))


def test_one_more_problem_measures_only_its_pairs(copy):
    before = pairs(copy)
    with (copy.folder / "config/problems/small.yaml").open("a") as stream:
        stream.write("- {name: one more, choices: {C: [96], K: [224], 'Hi,Wi': [[23, 29]]}}\n")
    run = copy.make(DATASET)
    after = pairs(copy)
    new = set(after) - set(before)
    assert set(before.items()) <= set(after.items())
    assert len({key for _, _, key in new}) == 1
    assert run.measured == len(new & measurable(after)) > 0
    assert run.computed["headers"] == run.computed["compile"] == run.computed["configs"] == 0


def test_a_changed_feature_retrains_and_measures_nothing(copy):
    copy.edit("src/tileseer/kernels/features/gemm.py", 'p["Z"] * p["Y"] * p["X"]', 'p["Z"] * p["Y"] + p["X"]')
    run = copy.make()
    assert run.computed == AFTER_DATASET
    assert run.measured == 0


def test_a_changed_plot_rebuilds_the_report_only(copy):
    figures = copy.folder / "src/tileseer/report/figures.py"
    figures.write_text(figures.read_text() + "\nADDED = 1\n")
    assert copy.make().computed == {"report": 1}


def test_comments_compute_nothing_and_of_hardware_only_the_row_of_the_product_counts(copy):
    for module in ("core/errors.py", "learn/model.py"):
        path = copy.folder / "src/tileseer" / module
        path.write_text(f"# A comment.\n{path.read_text()}")
    assert not copy.make().jobs
    hardware = copy.folder / "config/hardware.yaml"
    rows = yaml.safe_load(hardware.read_text())
    rows["products"]["gfx90a_mi210"]["clock_ghz"] *= 2
    hardware.write_text(yaml.safe_dump(rows))
    assert not copy.make().computed
    rows["products"]["gfx950_mi355x"]["launch_floor_us"] *= 2
    hardware.write_text(yaml.safe_dump(rows))
    assert {"compile", "benchmark"} <= set(copy.make("--until", "benchmark").computed)


def test_another_arch_is_built_beside(copy):
    run = copy.make("results/models/gfx942")
    assert run.computed["arch_specs"] == run.computed["problems"] == 0
    assert run.computed["configs"] == 1
    assert b'"arch": "gfx942"' in copy.read("results/models/gfx942/index.json")


def test_another_seed_measures_everything_again_and_going_back_computes_nothing(copy):
    before = copy.read(DATASET)
    copy.configure(benchmark={"seed": 2})
    # Damaged records of Snakemake give no stale results.
    for path in (copy.folder / ".snakemake/metadata").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    run = copy.make()
    assert run.measured == len(measurable(pairs(copy)))
    assert set(run.computed) == {"benchmark", "dataset", *AFTER_DATASET}
    assert copy.read(DATASET) != before
    copy.configure(benchmark={"seed": 1})
    shutil.rmtree(copy.folder / ".snakemake")
    back = copy.make()
    assert not back.computed and back.restored["benchmark"] == run.computed["benchmark"]
    assert copy.read(DATASET) == before


def test_lost_results_are_put_back(copy):
    kept = {name: copy.read(name) for name in ("results/models/gfx950/index.json", "results/reports/gfx950.html")}
    for path in (copy.folder / "results").iterdir():
        if path.is_dir() and path.name != "journals":
            shutil.rmtree(path)
    run = copy.make()
    assert not run.computed
    assert {name: copy.read(name) for name in kept} == kept
    assert not copy.make().jobs


def test_without_a_store_every_stage_that_runs_computes(copy):
    copy.configure(cache={"max_gib": 0})
    copy.edit("workflow/templates/report.html.j2", "</body>", "<!-- changed --></body>")
    copy.make()
    copy.edit("workflow/templates/report.html.j2", "<!-- changed -->", "")
    assert copy.make().computed == {"report": 1}
