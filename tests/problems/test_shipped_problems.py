"""What config/problems holds, and what the default settings choose from it."""

import csv
from collections import defaultdict

import pandas as pd
import pytest
from repository import CONFIG, ROOT, SPECS

from tileseer.facts.inputs import ProblemsSettings
from tileseer.facts.operations import VARIANTS
from tileseer.libraries.candidates import with_fields
from tileseer.libraries.registry import check_support
from tileseer.libraries.rule_sets import read_sweep
from tileseer.problems import layers, problem_sets
from tileseer.problems import problem as problem_tables
from tileseer.problems.operation import Operation
from zoo import entries, tables

PROBLEMS = CONFIG / "problems"


def rows_of(name, columns):
    header, *rows = csv.reader((PROBLEMS / name).read_text().splitlines())
    assert tuple(header) == columns
    return rows


@pytest.fixture(scope="module")
def table():
    return layers.read_layers(PROBLEMS / "layers.csv")


@pytest.fixture(scope="module")
def networks():
    return [tables.NetworkRow(*row) for row in rows_of("networks.csv", tables.NetworkRow._fields)]


def test_the_table_spans_many_networks_tasks_and_packages(table, networks):
    assert len({layer.network for layer in table}) >= 400
    assert len({layer.dims for layer in table}) >= 5000
    assert {row.task for row in networks} >= {
        "classification", "detection", "segmentation", "generation", "video", "medical", "speech",
    }  # fmt: skip
    assert {layer.layout for layer in table} == {"NCL", "NCHW", "NCDHW"}
    assert any(layer.dims[5] != layer.dims[6] for layer in table if layer.layout == "NCHW")


def test_no_layer_is_in_two_splits(table):
    layers.assert_splits(table, "layers.csv")
    splits = defaultdict(set)
    for layer in table:
        splits[layer.layer_family].add(layer.split)
    assert all(len(found) == 1 for found in splits.values())


def test_test_networks_are_whole(table, networks):
    split = {row.network: row.split for row in networks}
    assert {layer.split for layer in table if split[layer.network] == "test"} == {"test"}
    assert {row.split for row in networks} == set(layers.LAYER_SPLITS)
    assert all(row.split == tables.split_of(row.family) for row in networks)


def test_every_network_of_the_zoo_is_in_the_table_or_among_what_was_left_out(table, networks):
    named = entries.load(PROBLEMS / "zoo.yaml")
    left_out = {network for network, *_ in rows_of("left_out.csv", tables.LeftOut._fields)}
    known = {row.network for row in networks}
    assert known == {layer.network for layer in table}
    assert {entry.name for entry in named} == known | left_out


def test_the_tables_are_what_is_written_of_them(table, networks, tmp_path):
    left_out = [tables.LeftOut(*words, int(n)) for *words, n in rows_of("left_out.csv", tables.LeftOut._fields)]
    tables.write(tmp_path, networks, table, left_out)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(written) == 3 and written == {name: (PROBLEMS / name).read_bytes() for name in written}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_default_settings_choose_large_and_disjoint_sets(monkeypatch, variant):
    monkeypatch.chdir(ROOT)
    operation = Operation(variant, "bf16")
    chosen = problem_sets.choose_problems(ProblemsSettings(), operation, (2, 3))
    sides = (chosen.training, chosen.validation)
    for what in ("key", "layer_family"):
        trained, judged = ({getattr(entry.problem, what) for entry in side} for side in sides)
        assert not trained & judged
    assert all({entry.problem.ndim for entry in side} == {2, 3} for side in sides)
    assert ProblemsSettings().min_validation <= len(chosen.validation) <= ProblemsSettings().validation_problems
    assert len({run.network for run in chosen.runs}) >= 10
    keys = {entry.problem.key for entry in chosen.validation}
    assert {layer.problem_for(operation).key for run in chosen.runs for layer in run.layers} == keys
    problems = problem_tables.problem_frame([entry.problem for entry in chosen.validation])
    for arch in ("gfx950", "gfx942", "gfx90a"):
        assert runnable(problems, operation, arch).all(), arch


def runnable(problems, operation, arch):
    """Which problems some kernel of the default rule set can run, depthwise and odd channels among them."""
    found = read_sweep(CONFIG / "rule_sets/sweep.yaml", arch).enumerate(SPECS, arch, operation, [2, 3])
    kernels = with_fields(pd.DataFrame({"kernel": [kernel.name for kernel in found.kernels], "split_k": 1}))
    return (check_support(problems, kernels, operation.variant) == 0).any(axis=1)
