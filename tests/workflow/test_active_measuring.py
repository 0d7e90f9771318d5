"""Active measuring as a mode of the workflow: few pairs, the same ones again, and a learning curve."""

import json

import pyarrow.compute as pc
import pyarrow.parquet as pq
from journals import as_lines
from small_workflow import TARGETS

CHOSEN = "results/active/gfx950/forward_bf16.parquet"
DATASET = "results/datasets/gfx950/forward_bf16.parquet"
REPORT = "results/validation/gfx950/forward_bf16.json"


def test_few_training_pairs_are_measured_and_chosen_again_from_the_journal(fresh):
    fresh.configure(benchmark={"seed": 1, "training_share": 0.3})
    first = fresh.make()
    chosen = pq.read_table(fresh.folder / CHOSEN)
    total = json.loads(chosen.schema.metadata[b"tileseer"])["supported_training_pairs"]
    assert 0.1 * total < chosen.num_rows <= 0.3 * total
    rows = pq.read_table(fresh.folder / DATASET)
    measured = rows.filter(pc.and_(pc.equal(rows["split"], "train"), pc.not_equal(rows["status"], "unsupported")))
    assert measured.num_rows == chosen.num_rows
    curve = json.loads(fresh.read(REPORT))["active"]["rounds"]
    assert [entry["pairs"] for entry in curve] == sorted(entry["pairs"] for entry in curve)
    assert curve[-1]["pairs"] == chosen.num_rows
    assert first.measured >= chosen.num_rows

    kept = {name: fresh.read(name) for name in (CHOSEN, DATASET, REPORT)}
    (fresh.folder / CHOSEN).unlink()
    again = fresh.make(CHOSEN, *TARGETS)
    assert again.jobs["active"] == 1
    assert again.measured == 0
    assert {name: fresh.read(name) for name in kept} == kept

    # A choice that was interrupted, before any chunk was measured, is taken up where it ended.
    journal = as_lines(fresh.folder / "results/journals/gfx950/forward_bf16/active.csv")
    for chunk in journal.parent.glob("[0-9].*"):
        chunk.unlink()
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[: len(lines) // 2]) + lines[-1][:20])
    (fresh.folder / CHOSEN).unlink()
    resumed = fresh.make(CHOSEN)
    assert 0 < resumed.measured < len(lines) - 1
    assert fresh.read(CHOSEN) == kept[CHOSEN]
