"""Kernels with the same machine code: which are found, and which one stands for the others."""

from __future__ import annotations

import dataset_files
import learning_samples as samples
import numpy as np
import pyarrow as pa
import pytest
from kernel_samples import a_kernel
from published_models import SMALL_SERVING
from repository import MI355X

from tileseer.build import aliases
from tileseer.core import parquet
from tileseer.core.errors import UserError
from tileseer.data.dataset import Dataset
from tileseer.data.dataset_files import KERNELS
from tileseer.learn import training as stage
from tileseer.learn.model import Model
from tileseer.measure import support_table
from tileseer.serve import serving as serving
from tileseer.serve.scoring import with_other_names

FIRST, SECOND, THIRD = (a_kernel(pipeline=pipeline) for pipeline in ("basic_v1", "compv1", "mem"))
EVERYTHING = ("p1", "p2")


def build(*rows, status="ok"):
    """A build table; a row is a kernel and its code."""
    kernels, codes = zip(*rows, strict=True)
    names = [kernel.name for kernel in kernels]
    columns = {"kernel": names, "kernel_id": [f"id {n}" for n in names]}
    return pa.table(columns | {"build_status": [status] * len(rows), "code_hash": list(codes)})


def support(problems_by_kernel, split_k=1):
    """A support table; a kernel can run the problems that are listed, and no other."""
    rows = [
        (f"id {kernel.name}", split_k, key, support_table.SUPPORTED if key in keys else "vector")
        for kernel, keys in problems_by_kernel
        for key in EVERYTHING
    ]
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=support_table.SCHEMA)


def aliases_of(builds, supports):
    return aliases.find_aliases(builds, [part.filter(support_table.supported(part)) for part in supports])


def found(builds, supports):
    return [(row["kernel"], row["alias_of"]) for row in aliases_of(builds, supports).to_pylist()]


def test_the_first_by_name_stands_for_kernels_of_any_chunk():
    builds = [build((SECOND, "code"), (THIRD, "other")), build((FIRST, "code"))]
    supports = [support([(SECOND, EVERYTHING), (THIRD, EVERYTHING)]), support([(FIRST, EVERYTHING)])]
    assert found(builds, supports) == [(SECOND.name, FIRST.name)]
    assert found(builds[::-1], supports[::-1]) == [(SECOND.name, FIRST.name)]


def test_same_code_that_can_run_other_problems_is_measured_itself():
    builds = [build((FIRST, "code"), (SECOND, "code"))]
    assert found(builds, [support([(FIRST, EVERYTHING), (SECOND, ("p1",))])]) == []


def test_same_code_that_is_launched_otherwise_is_measured_itself():
    merged = a_kernel(num_groups_to_merge=2)
    builds = [build((a_kernel(), "code"), (merged, "code"))]
    assert found(builds, [support([(a_kernel(), EVERYTHING), (merged, EVERYTHING)])]) == []


@pytest.mark.parametrize(("code", "status"), [("", "ok"), ("code", "pruned")])
def test_without_code_or_without_a_build_nobody_is_an_alias(code, status):
    builds = [build((FIRST, code), (SECOND, code), status=status)]
    assert found(builds, [support([(FIRST, EVERYTHING), (SECOND, EVERYTHING)])]) == []


def test_pairs_of_an_alias_are_those_of_its_stand_in():
    pairs = support([(FIRST, EVERYTHING), (SECOND, EVERYTHING)])
    known = aliases_of([build((FIRST, "code"), (SECOND, "code"))], [pairs])
    assert aliases.measured_mask(pairs, known).to_pylist() == [True, True, False, False]
    names = pa.array([FIRST.name, SECOND.name])
    assert aliases.alias_names(names, known).to_pylist() == ["", FIRST.name]


def test_two_names_of_one_code_are_one_candidate_with_both_names(tmp_path):
    world = samples.measured()
    folder = dataset_files.dataset(tmp_path / "own", device=MI355X.name)
    alone = Dataset.read(folder)
    first = alone.candidates["kernel"][0]
    rows = parquet.read_table(folder / "kernels.parquet").to_pylist()
    second = a_kernel(num_groups_to_merge=2).name
    rows.append(rows[0] | {"kernel": second, "kernel_id": "0", "alias_of": first})
    parquet.write_table(pa.Table.from_pylist(rows, KERNELS), folder / "kernels.parquet")
    data = Dataset.read(folder)
    assert second not in set(data.candidates["kernel"]) and len(data.candidates) == len(world.candidates)
    assert (data.candidates.set_index("kernel")["aliases"] != "").sum() == 1
    assert data.candidates.set_index("kernel")["aliases"][first] == second
    assert (data.candidate == alone.candidate).all()
    assert np.array_equal(data.latency_ms, alone.latency_ms, equal_nan=True)

    settings = stage.settings_for(samples.SMALL, data)
    trained = samples.train(data, MI355X, settings, coefficients=samples.COEFFICIENTS)
    served = serving.serve_model(data, trained.model, SMALL_SERVING)
    entries = {entry.kernel: entry.aliases for entry in served.kernels.kernels}
    assert entries[first] == [second] and second not in entries
    assert {aliases for kernel, aliases in entries.items() if kernel != first} == {None}
    assert second not in served.header and second not in served.selector.kernels

    trained.save(tmp_path / "training")
    model = Model.read(tmp_path / "training")
    every = with_other_names(model.pool).set_index("candidate")
    assert (every.loc[second, ["vgprs", "occupancy"]].isna() == every.loc[first, ["vgprs", "occupancy"]].isna()).all()
    assert len(every) == len(model.pool) + 1


def test_another_table_is_refused(tmp_path):
    parquet.write_table(pa.table({"kernel": ["x"]}), tmp_path / "t.parquet")
    with pytest.raises(UserError, match="there is no column kernel_id: another table"):
        aliases.read_aliases(tmp_path / "t.parquet")
    assert aliases.read_aliases(None).num_rows == 0
