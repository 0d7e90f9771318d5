"""The dataset says of every pair what became of it: refused, failed to build, failed to run, or measured."""

from __future__ import annotations

from dataclasses import replace

import host_library
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from repository import COEFFICIENTS, CONFIG, MI355X, SPECS

from tileseer.build import build
from tileseer.build.base import CompileUnit, NoToolchain
from tileseer.core import documents, parquet
from tileseer.core.errors import UserError
from tileseer.data import assembly
from tileseer.data.dataset import Dataset
from tileseer.libraries import candidates
from tileseer.libraries.ck_tile.sweep import CkTileSweep
from tileseer.measure import benchmark as run
from tileseer.measure import journal, receipt, support_table
from tileseer.measure.device import STATUSES, Times
from tileseer.problems import problem_table
from tileseer.problems.operation import Operation
from tileseer.problems.problem import Problem
from tileseer.problems.problem_table import ProblemEntry

FORWARD = Operation("forward", "bf16")
DRIFT = 1.03125


class ToyDevice:
    """Every pair takes as many microseconds as its candidate's number plus one; the first one of a call fails."""

    status, seconds = "crash", None

    name, kind = "toy", "recorded"
    largest_batch, differs = 1000, False

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
    sweep = CkTileSweep.read_file(CONFIG / "rule_sets/sweep.yaml")
    kernels = sweep.enumerate(SPECS, "gfx950", FORWARD, [2]).kernels[:4]
    toolchain = NoToolchain(MI355X, COEFFICIENTS)
    table = build.build_kernels([CompileUnit(k, "gfx950", b"text") for k in kernels], [[1]] * 4, toolchain)
    built = table.to_pylist()
    built[3] |= {"build_status": "compile_error", "build_reason": "error: no such type"}
    built = pa.Table.from_pylist(built, schema=build.SCHEMA)
    problems = problem_table.problem_table(
        [ProblemEntry(Problem.from_dims("forward", "bf16", C=c, K=64, Hi=8, Wi=8), "grid", "") for c in (64, 32, 3)], []
    )
    session = host_library.session(tmp_path / "journal.csv", seed=1)
    batch = run.Batch(session, ToyDevice(), problems.to_pandas(), candidates.from_build(built))
    pairs = support_table.build_support_table(batch.problems, batch.candidates, "forward", MI355X)
    files = assembly.ChunkFiles(tmp_path / "build.parquet", tmp_path / "support.parquet", tmp_path / "receipt.json")
    parquet.write_table(built, files.build)
    parquet.write_table(pairs, files.support)
    return batch, files, pairs, problems, tmp_path / "journal.csv"


def assembled(files, problems):
    """Return the pairs of the dataset of chunks, the dataset, and the quarantine."""
    folder = files[0].receipt.with_name("dataset")
    pairs, quarantine = assembly.write_dataset(files, problems, "gfx950", "forward_bf16", folder)
    assert parquet.read_table(folder / "pairs.parquet").equals(pairs)
    return pairs.to_pandas(), Dataset.read(folder), quarantine


def measured(chunk, budget_s=None):
    batch, files, pairs, _, path = chunk
    batch = replace(batch, session=host_library.session(path))
    wanted = pairs.filter(support_table.supported(pairs))
    book = journal.Journal(path)
    missing = run.missing_pairs(wanted, journal.read_journal(path, batch.by)[0])
    run.measure_pairs(batch, *run.order_pairs(batch, missing, mixed=False), book, budget_s)
    book.close()
    rows = receipt.counted(journal.read_journal(path, batch.by)[0], wanted)
    made = receipt.Receipt(
        **batch.by._asdict(), operation="forward_bf16", chunk=0, journal=str(path), **receipt.summarize_rows(rows),
        malformed_lines=0, skipped=wanted.num_rows - rows.num_rows,
    )  # fmt: skip
    documents.write_document(files.receipt, made)
    return files


def test_every_tried_pair_has_a_row_and_says_what_became_of_it(chunk):
    pairs, data, quarantine = assembled([measured(chunk)], chunk[3])
    assert not quarantine.num_rows
    assert pairs["status"].tolist() == [STATUSES[code] for code in data.status]
    assert pairs[["status", "reason"]].astype(str).value_counts().to_dict() == {("ok", ""): 5, ("crash", "crash"): 1}
    assert (pairs["sentinel"] == DRIFT).all() and (data.sentinel == DRIFT).all()
    assert (data.arch, data.operation, data.device, data.device_kind) == ("gfx950", "forward_bf16", "toy", "recorded")
    kernels = parquet.read_table(chunk[1].receipt.with_name("dataset") / "kernels.parquet").to_pandas()
    assert kernels.value_counts(["build_status", "build_reason"]).to_dict() == {
        ("ok", ""): 3,
        ("compile_error", "error: no such type"): 1,
    }
    # Two problems with three kernels that were built; the third problem has three channels, which no kernel takes.
    assert (len(data.problems), len(data.candidates), len(data.problem)) == (3, 3, 6)
    of_candidate = pd.Index(chunk[0].candidates["kernel"]).get_indexer(data.candidates["kernel"])
    assert np.allclose(data.latency_ms[data.ok], 1e-3 * (of_candidate[data.candidate] + 1.0)[data.ok])
    flops = 2.0 * data.problems["C"].to_numpy() * 64 * 64
    assert np.allclose(data.tflops[data.ok], (flops[data.problem] / data.latency_ms * 1e-9)[data.ok])


def test_malformed_lines_are_quarantined_with_file_line_and_reason(chunk):
    files = measured(chunk)
    path = chunk[4]
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], "half a li\n", *lines[2:]]))
    pairs, _, quarantine = assembled([files], chunk[3])
    assert len(pairs) == 6
    told = {"journal": str(path), "line": 3, "reason": "its checksum does not fit", "text": "half a li"}
    assert quarantine.to_pylist() == [told]


def test_a_spent_budget_leaves_pairs_out_and_a_larger_one_goes_on(chunk):
    # Every pair costs the toy device a second; a batch is one pair.
    chunk[0].device.seconds, chunk[0].device.largest_batch = 1.0, 1
    pairs, data, _ = assembled([measured(chunk, 2.0)], chunk[3])
    # Of a problem that the budget left out nothing is known; that no kernel takes the third one is.
    assert len(data.problems) == 2 and len(set(data.problem)) == 1
    assert len(pairs) == 2 and len(chunk[4].read_text().splitlines()) == 1 + 2
    # The same budget is spent. Of a larger one, what it has more.
    pairs, _, _ = assembled([measured(chunk, 2.0)], chunk[3])
    assert len(pairs) == 2
    pairs, _, _ = assembled([measured(chunk, 3.0)], chunk[3])
    assert len(pairs) == 3
    pairs, _, _ = assembled([measured(chunk)], chunk[3])
    assert len(pairs) == 6
    assert len(chunk[4].read_text().splitlines()) == 1 + 6


def test_a_kernel_with_a_wrong_result_has_no_times(chunk):
    chunk[0].device.status = "wrong_result"
    _, data, _ = assembled([measured(chunk)], chunk[3])
    wrong = data.status == STATUSES.index("wrong_result")
    assert wrong.sum() == 2 and len(set(data.candidate[wrong])) == 1
    assert np.isnan(data.latency_ms[wrong]).all() and np.isnan(data.tflops[wrong]).all()
    assert np.count_nonzero(data.ok) == 4
    journal_rows = journal.read_journal(chunk[4])[0]
    assert journal_rows["status"].to_pylist().count("ok") == 5, "the journal keeps what was measured"


def test_a_pair_on_a_throttled_device_is_measured_again_by_the_next_run(chunk):
    chunk[0].device.status = "throttled"
    pairs, _, _ = assembled([measured(chunk)], chunk[3])
    assert pairs["status"].tolist().count("throttled") == 1
    chunk[0].device.status = "ok"
    pairs, _, _ = assembled([measured(chunk)], chunk[3])
    assert pairs["status"].tolist() == ["ok"] * 6
    assert len(chunk[4].read_text().splitlines()) == 1 + 6 + 1


@pytest.mark.parametrize("damage", ["lost", "changed"])
def test_a_journal_that_does_not_fit_its_receipt_stops_the_stage(chunk, damage):
    files = measured(chunk)
    path = chunk[4]
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]) if damage == "lost" else path.read_text().replace(",0.002,", ",0.003,"))
    with pytest.raises(UserError, match=r"journal\.csv: .*delete the receipt and run again"):
        assembled([files], chunk[3])
