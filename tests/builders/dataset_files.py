"""Datasets of the small world of ``learning_samples`` as files."""

import json

import numpy as np
import pyarrow as pa
from learning_samples import measured

from tileseer.core import parquet
from tileseer.dataset.provenance import SCHEMA_VERSION
from tileseer.dataset.schema import SCHEMA
from tileseer.measure.device import STATUSES

NOISE = 0.01


def dataset(
    path, change=lambda rows: None, seed=1, operation="forward_bf16", arch="gfx950", device="a_product", counts=None,
    world=None,
):  # fmt: skip
    """Write the small world as a dataset, each time with noise of its own; ``change`` edits it or returns another.

    ``world``: another one.
    """
    world = world or measured()
    rows = world.problems.iloc[world.problem].reset_index(drop=True)
    for name in ("kernel", "kernel_id", "split_k"):
        rows[name] = world.candidates[name].to_numpy()[world.candidate]
    rows["status"] = np.array(STATUSES)[world.status]
    noise = np.random.default_rng(seed).normal(1, NOISE / np.sqrt(10), len(rows))
    rows["latency_ms"] = world.latency_ms * noise
    rows = rows.assign(tflops=1.0, reason="", non_zero=1, samples=10, latency_cv=NOISE, resources_from="estimated")
    changed = change(rows)
    rows = rows if changed is None else changed
    for field in SCHEMA:
        if field.name not in rows:
            rows[field.name] = None if field.nullable else ""
    table = pa.table([pa.array(rows[field.name], from_pandas=True).cast(field.type) for field in SCHEMA], schema=SCHEMA)
    made = {
        "schema_version": SCHEMA_VERSION, "arch": arch, "operation": operation, "device": device,
        "device_kind": "simulated", "measurement_id": "0" * 16, "rows_by_status": counts or {},
    }  # fmt: skip
    parquet.write_table(table.replace_schema_metadata({"tileseer": json.dumps(made)}), path)
    return str(path)
