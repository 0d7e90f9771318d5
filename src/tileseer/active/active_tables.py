"""The pool of active measuring from support tables, and the table of chosen pairs from its rounds."""

import json
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from tileseer.active.choice import Pool, Round
from tileseer.benchmark import receipt
from tileseer.benchmark.chosen_pairs import SCHEMA
from tileseer.support import support_table


def pool(problems: pd.DataFrame, candidates: pd.DataFrame, pairs: Sequence[pa.Table]) -> tuple[Pool, pa.Table]:
    """The supported pairs of training problems, and the same as rows of ``receipt.IDENTITY``.

    ``pairs`` are the support tables of all chunks. The order is by problem and then by candidate of the two tables.
    """
    supported = pa.concat_tables(
        [
            table.filter(support_table.supported(table))
            .select(receipt.IDENTITY)
            .cast(pa.schema([("kernel_id", pa.string()), ("split_k", pa.int32()), ("problem_key", pa.string())]))
            for table in pairs
        ]
    )
    keys = pd.MultiIndex.from_frame(candidates[["kernel_id", "split_k"]].astype({"kernel_id": str}))
    columns = supported.to_pandas()
    problem = pd.Index(problems["problem_key"].astype(str)).get_indexer(columns["problem_key"].astype(str))
    candidate = keys.get_indexer(
        pd.MultiIndex.from_arrays([columns["kernel_id"].astype(str), columns["split_k"].astype("int64")])
    )
    trains = (problems["split"] == "train").to_numpy()
    rows = np.flatnonzero(trains[problem])
    rows = rows[np.lexsort((candidate[rows], problem[rows]))]
    return Pool(problems, candidates, problem[rows], candidate[rows]), supported.take(pa.array(rows))


def table(rounds: Sequence[Round], pairs: pa.Table) -> pa.Table:
    """The chosen pairs with what each round saw in the metadata; ``pairs`` are those of the pool."""
    chosen = np.concatenate([one.pairs for one in rounds])
    number = np.repeat(np.arange(len(rounds)), [len(one.pairs) for one in rounds])
    found = pairs.take(pa.array(chosen)).append_column("round", pa.array(number, pa.int32())).cast(SCHEMA)
    record = {
        "supported_training_pairs": pairs.num_rows,
        "rounds": [{"pairs": len(one.pairs), "picks_changed": one.picks_changed} for one in rounds],
    }
    return found.replace_schema_metadata({"tileseer": json.dumps(record, sort_keys=True)})
