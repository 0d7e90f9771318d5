"""Some pairs are measured a second time, by another worker: it says how far runs differ, and settles close calls."""

from __future__ import annotations

from pathlib import Path

import host_library
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from host_library import compiled
from journals import as_lines, read_details
from repository import COEFFICIENTS, MI355X, ROOT, SPECS

from tileseer.build import build as builds
from tileseer.build.base import CompileUnit, NoToolchain
from tileseer.core import documents, parquet
from tileseer.core.errors import UserError
from tileseer.data.assembly import ChunkFiles, write_dataset
from tileseer.data.dataset import Dataset
from tileseer.facts.benchmark import TIMINGS, Timing
from tileseer.libraries.candidates import from_build
from tileseer.libraries.ck_tile.sweep import CkTileSweep
from tileseer.measure import again, journal, receipt, session, support_table
from tileseer.measure.benchmark import ChunkTables, measure_chunk
from tileseer.problems import problem_table
from tileseer.problems.operation import Operation
from tileseer.problems.problem import Problem
from tileseer.problems.problem_table import ProblemEntry

FAKES = ("placed", "placed_too", "slow")
GPU = {
    "min_time_ms": 0.5, "sample_ms": 0.1, "min_samples": 4, "max_samples": 50, "budget_ms": 100,
    "hopeless_factor": 5, "pairs_again": 100, "contenders": 3, "close": 0.05,
}  # fmt: skip


def rows(times, problems=None, samples=10):
    """Return rows of a journal about kernels of these times (ms; NaN: it failed) on one problem each, or on these."""
    count = len(times)
    ok = np.isfinite(times)
    columns = {
        "kernel_id": [f"{i:016x}" for i in range(count)],
        "split_k": [1] * count,
        "problem_key": problems or ["p"] * count,
        "status": np.where(ok, "ok", "crash"),
        "latency_ms": pa.array(times, from_pandas=True),
        "tflops": pa.array(1.0 / np.array(times), from_pandas=True),
        "samples": np.where(ok, samples, 0),
    }
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    return table.append_column("measurement_id", pa.repeat("m", count))


def test_the_fastest_of_a_problem_contend_if_they_are_close():
    table = rows([1.0, 1.01, 1.019, 1.015, 1.5, np.nan, 2.0, 2.1], ["p"] * 6 + ["q"] * 2)
    (group,) = again.contenders(table, most=3, close=0.02)
    assert group.tolist() == [0, 1, 3]
    assert again.contenders(table, most=1, close=0.02) == []
    assert again.contenders(rows([]), most=3, close=0.02) == []


def test_a_draw_that_was_measured_is_not_planned_again_and_half_a_contest_is():
    table, gpu = rows([1.0, 1.01, 3.0]), Timing(pairs_again=2, contenders=2)
    nothing = table.slice(0, 0)
    planned = again.plan_again(table, nothing, gpu, seed=1)
    assert planned.num_rows == 2 + 4
    assert planned["latency_ms"].to_pylist()[2:] == [1.0, 1.01, 1.01, 1.0]
    assert again.plan_again(table, pa.concat_tables([planned, planned]), gpu, seed=1).num_rows == 0
    assert again.plan_again(table, planned.slice(0, 3), gpu, seed=1).num_rows == 4


def test_the_noise_between_runs_is_found_in_the_differences():
    draw = np.random.default_rng(1).normal(0, 0.01 * np.sqrt(2), 2000)
    assert again.noise_between_runs(draw.tolist()) == pytest.approx(0.01, rel=0.05)
    assert again.noise_between_runs([0.01] * (again.LEAST_PAIRS_FOR_NOISE - 1)) is None


def test_both_times_count_the_same_however_often_the_second_worker_measured():
    first, second = rows([1.0, 2.0, 4.0]), rows([1.2])
    second = pa.concat_tables([second, rows([1.4])])
    found = again.combined(first, second)
    assert found["latency_ms"].to_pylist() == pytest.approx([1.15, 2.0, 4.0])
    assert found["tflops"].to_pylist() == pytest.approx([1 / 1.15, 0.5, 0.25])


@pytest.fixture(scope="session")
def named(libraries, tmp_path_factory):
    """The measuring driver, and three fake kernels under names of real ones, with these kernels."""
    sweep = CkTileSweep.read_file(ROOT / "config/rule_sets/sweep.yaml")
    kernels = sweep.enumerate(SPECS, "gfx950", Operation("forward", "bf16"), [2]).kernels[:3]
    folder = tmp_path_factory.mktemp("named")
    source = (ROOT / "tests/builders/fake_kernels.cpp").read_text()
    for fake, kernel in zip(FAKES, kernels, strict=True):
        assert f'"{fake}"' in source
        source = source.replace(f'"{fake}"', f'"{kernel.name}"')
    (folder / "named.cpp").write_text(source)
    return libraries[0], compiled(folder / "named.cpp", folder / "named.so"), kernels


@pytest.fixture
def stage(named, tmp_path, monkeypatch):
    """Return how to run the benchmark stage on them: a function of the settings, and the files of the chunk."""
    driver, module, kernels = named
    toolchain = NoToolchain(MI355X, COEFFICIENTS)
    built = builds.build_kernels([CompileUnit(k, "gfx950", b"") for k in kernels], [[1]] * len(kernels), toolchain)
    entries = [
        ProblemEntry(Problem.from_dims("forward", "bf16", C=8, K=8, Hi=size, Wi=5, Y=3, X=3, pad_h=1), "grid", "")
        for size in (4, 5, 6, 7)
    ]
    problems = problem_table.problem_table(entries, [])
    pairs = support_table.build_support_table(problems.to_pandas(), from_build(built), "forward", MI355X)
    pairs = pairs.set_column(3, "rule", pa.array([""] * len(pairs)).dictionary_encode())
    for name, table in (("build", built), ("support", pairs), ("problems", problems)):
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "boards", lambda backend: [])
    tables = ChunkTables(
        *(tmp_path / f"{name}.parquet" for name in ("support", "build", "problems")), None, Path(module)
    )

    def run(budget=None, **gpu):
        monkeypatch.setitem(TIMINGS, "standard", Timing(**GPU | gpu))
        locks = {"folder": str(tmp_path / "locks")}
        made = host_library.session(Path("journals/0.csv"), driver=driver, lock=locks, device="hip", budget=budget)
        vouched, _ = measure_chunk(made, 0, tables, 1, again.journal_again(made.journal))
        documents.write_document(tmp_path / "receipt.json", vouched)
        return receipt.Receipt.read(tmp_path / "receipt.json")

    return run, tmp_path, problems


def assembled(folder, problems):
    chunk = ChunkFiles(folder / "build.parquet", folder / "support.parquet", folder / "receipt.json")
    write_dataset([chunk], problems, "gfx950", "forward_bf16", folder / "dataset")
    return Dataset.read(folder / "dataset")


def test_a_second_worker_tells_the_noise_that_the_first_one_cannot_see(stage):
    run, folder, problems = stage
    told = run()
    assert told.pairs == 12 and told.by_status == {"ok": 12}
    # The two that are close contend on each problem, and are measured there and back.
    assert len(told.differences) == told.again - 4 * 4 >= 8
    first = journal.read_journal(folder / "journals/0.csv")[0].to_pandas()
    second = journal.read_journal(folder / "journals/again/0.csv")[0].to_pandas()
    found = assembled(folder, problems)
    assert found.between_runs == pytest.approx(np.median(np.abs(told.differences)) / again.MEDIAN_DIFFERENCE, abs=1e-6)
    placed = first[first["kernel"] == first["kernel"].min()]
    assert found.between_runs > (placed["latency_cv"] / np.sqrt(placed["samples"])).max()
    assert (found.relative_error[found.status == 0] >= found.between_runs).all()
    # A time of the dataset is the mean of both workers' times.
    key = ["problem_key", "kernel"]
    known = pd.DataFrame(
        {"first": first.set_index(key)["latency_ms"], "second": second.groupby(key)["latency_ms"].mean()}
    )
    keys = (
        found.problems["problem_key"].to_numpy()[found.problem],
        found.candidates["kernel"].to_numpy()[found.candidate],
    )
    assert np.allclose(found.latency_ms, known.mean(axis=1).loc[list(zip(*keys, strict=True))])
    # A log of its own: what is measured again is no first time of a pair.
    assert {event["event"] for event in read_details(folder / "journals/again/0.details.jsonl")} >= {"session", "pair"}
    assert pd.Series(e["event"] for e in read_details(folder / "journals/0.details.jsonl")).eq("pair").sum() == 12


def test_the_stage_measures_nothing_a_third_time_and_resumes_what_is_torn(stage):
    run, folder, _ = stage
    whole = run()
    columns = folder / "journals/again/0.1.parquet"
    content = columns.read_bytes()
    assert run() == whole and columns.read_bytes() == content
    path = as_lines(folder / "journals/again/0.csv")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:10]) + lines[10][:20])
    assert run().again >= whole.again
    assert journal.read_journal(path)[1], "the torn line is there, and is no measurement"


def test_nothing_is_measured_again_on_request(stage):
    run, folder, problems = stage
    told = run(pairs_again=0, contenders=0)
    assert (told.again, told.differences) == (0, [])
    assert not (folder / "journals/again").exists()
    assert assembled(folder, problems).between_runs is None


def test_a_dataset_is_not_made_of_a_changed_second_journal(stage):
    run, folder, problems = stage
    run()
    path = as_lines(folder / "journals/again/0.csv")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(UserError, match=r"again/0\.csv: its rows are not those that .*receipt\.json vouches for"):
        assembled(folder, problems)
