"""Flags of Snakemake mean what its manual says: the graph is static."""

from __future__ import annotations


def test_a_dry_run_from_scratch_lists_the_jobs_that_run(made, fresh):
    assert fresh.make("-n").planned == made[1].jobs


def test_another_number_of_chunks_gives_the_same_dataset(copy):
    before = copy.read("results/datasets/gfx950/forward_bf16/pairs.parquet")
    copy.configure(configs={"rule_set": "config/rule_sets/small.yaml", "chunks": 3})
    run = copy.make("results/datasets/gfx950/forward_bf16/pairs.parquet")
    assert run.jobs["benchmark"] == 3 and run.measured == 0
    assert copy.read("results/datasets/gfx950/forward_bf16/pairs.parquet") == before


def test_a_run_that_would_replace_models_of_a_gpu_stops_before_its_first_job(copy):
    index = "results/models/gfx950/index.json"
    copy.edit(index, '"device_kind": "simulated"', '"device_kind": "measured"')
    before = copy.read(index)
    assert "this run makes models of simulated times for gfx950" in copy.refuse("-f", "results/models/gfx950")
    assert copy.read(index) == before
