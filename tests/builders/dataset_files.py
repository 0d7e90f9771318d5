"""Datasets of the small world of ``learning_samples``, and parts of recordings, as files."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from learning_samples import measured
from repository import CONFIG

from tileseer.data.dataset_files import KERNELS, PAIRS, TABLES, read_recording, read_tables, write_tables
from tileseer.data.provenance import Recording
from tileseer.libraries.candidates import RESOURCES
from tileseer.measure.device import STATUSES
from tileseer.problems import problem_table
from tileseer.problems.shapes import implicit_gemm

NOISE = 0.01
BUILT = {"build_status": "ok", "build_reason": "", "error_digest": "", "code_hash": "", "resources_from": "estimated"}


def dataset(folder, seed=1, arch="gfx950", device="a_product", world=None):
    """Write a world (the small one) as a dataset, each time with noise of its own; return the folder."""
    world = world or measured()
    problems = world.problems.sort_values("problem_key")
    place = np.argsort(problems.index.to_numpy())
    known = world.candidates.groupby("kernel")
    kernels = known[["kernel_id", *RESOURCES]].first().reset_index().assign(split_k=known["split_k"].agg(list).tolist())
    noise = np.random.default_rng(seed).normal(1, NOISE / np.sqrt(10), len(world.problem))
    flops = implicit_gemm(world.problems, world.operation.rpartition("_")[0])["flops"].to_numpy()
    pairs = pd.DataFrame(
        {
            "problem": place[world.problem],
            "kernel": pd.Index(kernels["kernel"]).get_indexer(world.candidates["kernel"])[world.candidate],
            "split_k": world.candidates["split_k"].to_numpy()[world.candidate],
            "status": np.array(STATUSES)[world.status],
            "reason": "",
            "samples": 10,
            "median_us": flops[world.problem] / world.tflops * 1e-6 * noise,
            "cv": NOISE,
        }
    )
    rows = [{"alias_of": "", **BUILT, **row} for row in kernels.to_dict("records")]
    tables = {
        "problems": pa.Table.from_pandas(problems, problem_table.SCHEMA, preserve_index=False),
        "kernels": pa.Table.from_pylist(rows, KERNELS),
        "pairs": pa.Table.from_pandas(pairs.reindex(columns=PAIRS.names), preserve_index=False).cast(PAIRS),
    }
    about = {"arch": arch, "device": device, "operations": [world.operation], "device_kind": "simulated"}
    write_tables(folder, Recording(**about, measurement_id="0" * 16, latency="simulated", provenance={}), tables)
    return folder


def part_of_recording(folder, arch, operation, one_in):
    """Copy one in so many problems of a recording, in the order of their keys, as a dataset; return its folder."""
    source = CONFIG / "recorded" / arch / operation
    keys = read_tables(source).problems["problem_key"]
    kept = np.sort(keys.sort_values().index[::one_in])
    tables = {name: pq.read_table(source / f"{name}.parquet") for name in TABLES}
    pairs = tables["pairs"].to_pandas()
    pairs = pairs[pairs["problem"].isin(kept)].assign(problem=lambda rows: np.searchsorted(kept, rows["problem"]))
    tables["problems"] = tables["problems"].take(kept)
    tables["pairs"] = pa.Table.from_pandas(pairs, tables["pairs"].schema, preserve_index=False)
    about = read_recording(source.parent)
    write_tables(folder, about.model_copy(update={"operations": [operation]}), tables)
    return folder
