"""The dataset says of every pair what became of it: refused, failed to build, failed to run, or measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import host_library
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tileseer.compile import build
from tileseer.compile.base import CompileUnit
from tileseer.compile.none import NoToolchain
from tileseer.core import parquet
from tileseer.core.errors import UserError
from tileseer.dataset import assembly, schema
from tileseer.dataset.dataset import Dataset
from tileseer.gpus import hardware
from tileseer.gpus.arch import ArchSpecs
from tileseer.kernels import candidates, kernel_table
from tileseer.kernels.ck_tile.sweep import CkTileSweep
from tileseer.kernels.costs.coefficients import load_coefficients
from tileseer.measure import batch as run
from tileseer.measure import journal, receipt, support_table
from tileseer.measure.device import STATUSES, Times
from tileseer.problems import problem_table
from tileseer.problems.operation import Operation
from tileseer.problems.problem import Problem
from tileseer.problems.problem_table import ProblemEntry

ROOT = Path(__file__).parents[2]
FORWARD = Operation("forward", "bf16")
DRIFT = 1.03125


class ToyDevice:
    """Every pair takes as many microseconds as its candidate's number plus one; the first one of a call fails."""

    status, seconds = "crash", None

    name, kind = "toy", "recorded"
    largest_batch, order_seed = 1000, None

    def identity(self):
        return "toy"

    def measure(self, problems, candidates, problem_index, candidate_index):
        status = np.zeros(len(problem_index), np.uint8)
        status[0] = STATUSES.index(self.status)
        latency = np.where(status == 0, 1e-3 * (candidate_index + 1.0), np.nan)
        cv, samples = np.where(status == 0, 0.01, np.nan), np.where(status == 0, 3, 0).astype(np.int32)
        return Times(status, latency, cv, samples, sentinel=np.full(len(status), DRIFT), seconds=self.seconds)


@pytest.fixture
def chunk(tmp_path):
    """Four kernels, of which one did not compile, and three problems, of which one has three channels."""
    sweep = CkTileSweep.read_file(ROOT / "config/rule_sets/sweep.yaml")
    specs = ArchSpecs.load(ROOT / "config/arch_specs.json")
    kernels = sweep.enumerate(specs, "gfx950", FORWARD, [2]).kernels[:4]
    rows = kernel_table.tabulate_kernels(kernels, [1], 1)
    gpu = hardware.read_hardware(ROOT / "config/hardware.yaml", "gfx950_mi355x")
    toolchain = NoToolchain(
        gpu,
        load_coefficients(ROOT / "config/simulated_device.yaml"),
    )
    table, _ = build.build_kernels([CompileUnit(k, "gfx950", b"text") for k in kernels], [[1]] * 4, toolchain)
    built = table.to_pylist()
    built[3] |= {"build_status": "compile_error", "build_reason": "error: no such type"}
    built = pa.Table.from_pylist(built, schema=build.SCHEMA)
    problems = problem_table.problem_table(
        [ProblemEntry(Problem.from_dims("forward", "bf16", C=c, K=64, Hi=8, Wi=8), "grid", "") for c in (64, 32, 3)], []
    )
    session = host_library.session(tmp_path / "journal.csv", seed=1)
    batch = run.Batch(session, ToyDevice(), problems.to_pandas(), candidates.from_build(built))
    pairs = support_table.build_support_table(batch.problems, batch.candidates, "forward", gpu)
    files = assembly.ChunkFiles(tmp_path / "build.parquet", tmp_path / "support.parquet", tmp_path / "receipt.json")
    parquet.write_table(built, files.build)
    parquet.write_table(pairs, files.support)
    assert kernel_table.plan_text(rows).count("\n") == 2
    return batch, files, pairs, problems, tmp_path / "journal.csv"


def assembled(files, problems):
    """Return the dataset of chunks, as it is in its file, and the quarantine."""
    path = files[0].receipt.with_name("dataset.parquet")
    rows, quarantine = assembly.write_dataset(files, problems, "gfx950", "forward_bf16", path)
    table = parquet.read_table(path)
    assert table.num_rows == rows
    return table, quarantine


def measured(chunk, budget_s=None, batch_pairs=100):
    batch, files, pairs, _, path = chunk
    batch = replace(batch, session=host_library.session(path, timing_overrides={"batch_pairs": batch_pairs}))
    wanted = pairs.filter(support_table.supported(pairs))
    book = journal.Journal(path)
    missing = run.missing_pairs(wanted, journal.read_journal(path, batch.by)[0])
    run.measure_pairs(batch, *run.order_pairs(batch, missing), book, budget_s)
    book.close()
    rows = receipt.counted(journal.read_journal(path, batch.by)[0], wanted)
    receipt.Receipt(
        **batch.by._asdict(), operation="forward_bf16", chunk=0, journal=str(path), **receipt.summarize_rows(rows),
        malformed_lines=0, skipped=wanted.num_rows - rows.num_rows,
    ).write(files.receipt)  # fmt: skip
    return files


def test_every_pair_has_a_row_and_says_what_became_of_it(chunk):
    table, quarantine = assembled([measured(chunk)], chunk[3])
    assert not quarantine.num_rows
    rows = pd.DataFrame(table.to_pylist())
    assert len(rows) == 12 and table.schema.equals(schema.SCHEMA)
    assert rows.value_counts(["status", "reason"]).to_dict() == {
        ("ok", ""): 5,
        ("crash", "crash"): 1,
        ("compile_error", "error: no such type"): 3,
        ("unsupported", "vector"): 3,
    }
    assert (rows["tflops"].notna() == (rows["status"] == "ok")).all()
    sent = rows["status"].isin(["ok", "crash"])
    assert (rows["sentinel"][sent] == DRIFT).all() and rows["sentinel"][~sent].isna().all()
    ok = rows[rows["status"] == "ok"]
    flops = 2.0 * ok["C"] * 64 * 64
    assert np.allclose(ok["tflops"], flops / ok["latency_ms"] * 1e-9)


def test_what_is_loaded_is_what_was_assembled(chunk, tmp_path):
    table, _ = assembled([measured(chunk)], chunk[3])
    parquet.write_table(table, tmp_path / "d.parquet")
    m = Dataset.read(tmp_path / "d.parquet")
    assert (m.arch, m.operation, m.device, m.device_kind) == ("gfx950", "forward_bf16", "toy", "recorded")
    assert (len(m.problems), len(m.candidates)) == (3, 4)
    names = m.candidates["kernel"].to_numpy()[m.candidate]
    assert names.tolist() == table["kernel"].to_pylist()
    np.testing.assert_array_equal(m.sentinel, table["sentinel"].to_numpy())
    assert m.problems["problem_key"].to_numpy()[m.problem].tolist() == table["problem_key"].to_pylist()
    assert [STATUSES[code] for code in m.status] == table["status"].to_pylist()
    provenance = json.loads(parquet.read_table(tmp_path / "d.parquet").schema.metadata[b"tileseer"])
    assert provenance["device_kind"] == "recorded"
    assert provenance["rows_by_status"] == {"ok": 5, "crash": 1, "compile_error": 3, "unsupported": 3}


def test_malformed_lines_are_quarantined_with_file_line_and_reason(chunk):
    files = measured(chunk)
    path = chunk[4]
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], "half a li\n", *lines[2:]]))
    table, quarantine = assembled([files], chunk[3])
    assert table.num_rows == 12
    told = {"journal": str(path), "line": 3, "reason": "its checksum does not fit", "text": "half a li"}
    assert quarantine.to_pylist() == [told]


def test_a_spent_budget_leaves_pairs_skipped_and_a_larger_one_goes_on(chunk):
    # Every pair costs the toy device a second; a batch is one pair.
    chunk[0].device.seconds = 1.0
    table, _ = assembled([measured(chunk, 2.0, 1)], chunk[3])
    rows = pd.DataFrame(table.to_pylist())
    assert rows.value_counts(["status", "reason"])[("skipped", "beyond the budget")] == 4
    assert (rows.loc[rows["status"] == "skipped", "samples"] == 0).all()
    assert len(chunk[4].read_text().splitlines()) == 1 + 2
    table, _ = assembled([measured(chunk)], chunk[3])
    assert "skipped" not in table["status"].to_pylist()
    assert len(chunk[4].read_text().splitlines()) == 1 + 6


def test_a_kernel_with_a_wrong_result_has_no_times(chunk):
    chunk[0].device.status = "wrong_result"
    table, _ = assembled([measured(chunk)], chunk[3])
    rows = pd.DataFrame(table.to_pylist())
    wrong = rows[rows["status"] == "wrong_result"]
    assert len(wrong) == 2 and wrong["kernel"].nunique() == 1
    assert sorted(wrong["reason"]) == [assembly.WRONG_ELSEWHERE, "wrong_result"]
    assert wrong["latency_ms"].isna().all() and wrong["tflops"].isna().all()
    assert (rows["status"] == "ok").sum() == 4
    journal_rows = journal.read_journal(chunk[4])[0]
    assert journal_rows["status"].to_pylist().count("ok") == 5, "the journal keeps what was measured"


def test_a_pair_on_a_throttled_device_is_measured_again_by_the_next_run(chunk):
    chunk[0].device.status = "throttled"
    table, _ = assembled([measured(chunk)], chunk[3])
    assert table["status"].to_pylist().count("throttled") == 1
    chunk[0].device.status = "ok"
    table, _ = assembled([measured(chunk)], chunk[3])
    assert table["status"].to_pylist().count("ok") == 6
    assert len(chunk[4].read_text().splitlines()) == 1 + 6 + 1


@pytest.mark.parametrize("damage", ["lost", "changed"])
def test_a_journal_that_does_not_fit_its_receipt_stops_the_stage(chunk, damage):
    files = measured(chunk)
    path = chunk[4]
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]) if damage == "lost" else path.read_text().replace(",0.002,", ",0.003,"))
    with pytest.raises(UserError, match=r"journal\.csv: .*delete the receipt and run again"):
        assembled([files], chunk[3])


def test_a_file_that_is_no_dataset_is_refused(tmp_path):
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    with pytest.raises(UserError, match=r"x\.parquet: there is no column kernel: another table"):
        Dataset.read(tmp_path / "x.parquet")
    (tmp_path / "y.parquet").write_bytes(b"PAR1 half a file")
    with pytest.raises(UserError, match=r"y\.parquet: this is no readable Parquet file"):
        Dataset.read(tmp_path / "y.parquet")
    with pytest.raises(UserError, match=r"z\.parquet: there is no such file"):
        Dataset.read(tmp_path / "z.parquet")
