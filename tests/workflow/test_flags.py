"""Flags of Snakemake mean what its manual says: the graph is static."""

from __future__ import annotations

from collections import Counter

from small_workflow import TARGETS

STAGES = (
    "arch_specs", "problems", "configs", "headers", "compile", "support", "benchmark", "dataset", "model", "evaluation",
    "serving", "publish", "report",
)  # fmt: skip


def test_a_dry_run_from_scratch_lists_the_jobs_that_run_and_the_graph_has_every_stage(made, fresh):
    assert fresh.make("-n", *TARGETS).planned == made[1].jobs
    graph = fresh.make("--rulegraph").output
    assert all(f'label = "{stage}"' in graph for stage in STAGES)


def test_until_a_stage_makes_its_files_and_the_next_call_goes_on(made, fresh):
    done = Counter()
    for stage in ("support", "report"):
        run = fresh.make("--until", stage)
        assert stage in run.jobs and not run.jobs.keys() & done.keys(), stage
        done += run.jobs
    assert done == made[1].jobs - Counter({"publish": 1})


def test_omit_from_leaves_a_stage_and_what_follows(fresh):
    run = fresh.make("--omit-from", "support")
    assert set(run.jobs) == {"arch_specs", "problems", "configs", "headers", "compile"}


def test_batches_of_the_dataset_lead_to_it(fresh):
    target = "results/datasets/gfx950/forward_bf16/pairs.parquet"
    runs = [fresh.make("--batch", f"dataset={batch}/2", "--", target) for batch in (1, 2)]
    assert [run.jobs["dataset"] for run in runs] == [0, 1]


def test_rules_and_files_can_be_listed(made):
    workflow, _ = made
    rules = workflow.make("--list-rules").output.split()
    assert {*STAGES, "all", "sources"} <= set(rules)
    lines = [line for line in workflow.make("--summary").output.splitlines() if line.startswith("results/")]
    assert len(lines) > 25 and all(line.endswith("no update") for line in lines)


def test_another_number_of_chunks_gives_the_same_dataset(copy):
    before = copy.read("results/datasets/gfx950/forward_bf16/pairs.parquet")
    copy.configure(configs={"rule_set": "config/rule_sets/small.yaml", "chunks": 3})
    run = copy.make("results/datasets/gfx950/forward_bf16/pairs.parquet")
    assert run.jobs["benchmark"] == 3 and run.measured == 0
    assert copy.read("results/datasets/gfx950/forward_bf16/pairs.parquet") == before
