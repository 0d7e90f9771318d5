"""The comparison of two datasets or two models: what it finds is what was changed."""

import dataclasses
import json

import learning_samples as samples
import numpy as np
import pytest
from dataset_files import dataset
from published_models import publish

from tileseer.cli import main


def slower(rows):
    rows.loc[rows["kernel"].str.contains("_mem_"), "latency_ms"] *= 1.2


def crashing(rows):
    rows.loc[rows["kernel"].str.contains("_mem_"), ["status", "latency_ms"]] = ["crash", np.nan]


def compare(capsys, *arguments):
    status = main.main(["compare", *arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_noise_is_no_change(tmp_path, capsys):
    a, b = dataset(tmp_path / "a.parquet"), dataset(tmp_path / "b.parquet", seed=2)
    status, found = compare(capsys, a, b)
    figures = found["figures"]
    assert status == 0
    assert figures["pairs"] > 300
    assert figures["pairs_faster"] + figures["pairs_slower"] <= 10
    assert abs(figures["gain_of_all_pairs_percent"]) < 0.2


def test_a_slower_pipeline_is_found_and_fails_the_check(tmp_path, capsys):
    a, b = dataset(tmp_path / "a.parquet"), dataset(tmp_path / "b.parquet", slower, seed=2)
    status, found = compare(capsys, a, b)
    hit = [row for row in found["candidates"] if "_mem_" in row["candidate"]]
    others = [row for row in found["candidates"] if "_mem_" not in row["candidate"]]
    assert hit and all(abs(row["gain_percent"] + 16.7) < 1 and row["slower"] == row["pairs"] for row in hit)
    assert all(abs(row["gain_percent"]) < 1 for row in others)
    lost = [row for row in found["problems"] if row["significant"]]
    assert lost and all("_mem_" in row["best_a"] for row in lost)
    assert status == 3


def test_a_gain_is_no_failure(tmp_path, capsys):
    a, b = dataset(tmp_path / "a.parquet", slower), dataset(tmp_path / "b.parquet", seed=2)
    status, found = compare(capsys, a, b)
    assert status == 1
    assert found["figures"]["pairs_faster"] > 50 and found["figures"]["pairs_slower"] <= 10


def test_two_archs_are_compared_over_the_kernels_that_both_have(tmp_path, capsys):
    def fewer(rows):
        slower(rows)
        return rows[rows["kernel"] != rows["kernel"].iloc[0]]

    a = dataset(tmp_path / "a.parquet")
    b = dataset(tmp_path / "b.parquet", fewer, seed=2, arch="gfx942")
    status, found = compare(capsys, a, b)
    assert (found["a"]["arch"], found["b"]["arch"]) == ("gfx950", "gfx942")
    assert status == 3 and found["figures"]["problems_lost"] > 0
    assert found["figures"]["pairs_only_in_a"] > 0 and found["figures"]["pairs_only_in_b"] == 0


def test_changed_statuses_are_counted(tmp_path, capsys):
    a, b = dataset(tmp_path / "a.parquet"), dataset(tmp_path / "b.parquet", crashing)
    _, found = compare(capsys, a, b)
    changed = {(row["status_a"], row["status_b"]): row["pairs"] for row in found["statuses"]}
    assert set(changed) == {("ok", "crash")} and changed["ok", "crash"] > 50


def test_without_known_noise_nothing_is_called_significant(tmp_path, capsys):
    def one_sample(rows):
        rows[["samples", "latency_cv"]] = [1, np.nan]
        slower(rows)

    a, b = dataset(tmp_path / "a.parquet"), dataset(tmp_path / "b.parquet", one_sample)
    _, found = compare(capsys, a, b)
    assert found["figures"]["pairs_slower"] == 0
    assert found["figures"]["pairs_without_known_noise"] == found["figures"]["pairs"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"operation": "bwd_data_bf16"}, "compare datasets of one operation"),
        ({"change": lambda rows: rows.__setitem__("problem_key", "0" * 16)}, "no pair of the same candidate"),
    ],
)
def test_what_can_not_be_compared_is_refused(tmp_path, capsys, change, words):
    a, b = dataset(tmp_path / "a.parquet"), dataset(tmp_path / "b.parquet", **change)
    assert main.main(["compare", a, b]) == 2
    assert words in capsys.readouterr().err


def test_it_says_that_nothing_differs_and_ends_with_0(tmp_path, capsys):
    times = dataset(tmp_path / "a.parquet")
    assert main.main(["compare", times, times]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no difference beyond noise"
    same = str(publish(tmp_path))
    assert main.main(["compare", same, same, "--measured", times]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no difference"


def test_models_that_pick_differently_end_with_1_or_3_and_show_where(tmp_path, capsys, monkeypatch):
    times = dataset(tmp_path / "a.parquet", lambda rows: rows.assign(tflops=1 / rows["latency_ms"]))
    right = str(publish(tmp_path / "right"))
    world = samples.measured()
    upside_down = dataclasses.replace(world, latency_ms=1 / world.latency_ms, tflops=1 / world.tflops)
    monkeypatch.setattr(samples, "measured", lambda variant: upside_down)
    wrong = str(publish(tmp_path / "wrong"))
    assert main.main(["compare", right, wrong, "--measured", times]) == 3
    said = capsys.readouterr().out
    assert "no difference" not in said and "gain points" in said
    assert main.main(["compare", wrong, right, "--measured", times]) == 1
    assert main.main(["compare", right, wrong]) == 2
