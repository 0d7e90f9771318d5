"""Rule sets that are asked for by their names, from the kernels to the report."""

import csv

import pyarrow.parquet as pq

from tileseer.cli.main import main

OPERATION = "results/configs/gfx950/forward_bf16"


def test_a_named_set_is_learnt_from(copy, capsys):
    copy.configure(configs={"rule_set": "tiny", "chunks": 1, "include_flagged": ["half_zero_output"]})
    run = copy.make()
    assert run.jobs["configs"] == run.jobs["report"] == 1 and run.measured
    learnt = pq.read_table(copy.folder / f"{OPERATION}.parquet")["kernel"].to_pylist()
    refused = list(csv.DictReader(copy.read(f"{OPERATION}.rejected.tsv").decode().splitlines(), delimiter="\t"))
    words = ["--arch", "gfx950", "--rule-set", "tiny", "--variant", "forward", "--dtype", "bf16"]
    main(["codegen", *words, "--list-configs", "--config", str(copy.folder / "config")])
    listed = list(csv.DictReader(capsys.readouterr().out.splitlines(), delimiter="\t"))
    depthwise = {row["built_as"] for row in listed if "_depthwise_" in row["kernel"]}
    # Every kernel of the set is learnt from or refused with the reason.
    assert {row["built_as"] for row in listed if not row["flags"]} - depthwise == set(learnt) != set()
    assert {row["kernel"] for row in refused} == {row["built_as"] for row in listed} - set(learnt)
    assert {row["kernel"] for row in refused if row["rule"] == "kind"} == depthwise != set()
    assert all(row["reason"] for row in refused)
    assert any(name.encode() in copy.read("results/reports/gfx950.csv") for name in learnt)
    # The tables of the set count as much as a rule-set file, by what they say.
    copy.edit("config/rule_sets/full.yaml", "layout: nhwgc", "# changed\nlayout: nhwgc")
    assert not copy.make("-n").planned["configs"]
    copy.edit("config/rule_sets/full.yaml", "at_least: 10", "at_least: 11")
    assert copy.make("-n").planned["configs"] == 1
