"""Table of the pairs that active measuring chose, and which pairs are to be measured because of it."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tileseer.benchmark.pairs import pair_text
from tileseer.core import parquet
from tileseer.core.errors import UserError
from tileseer.core.tables import Table, checked
from tileseer.support import support_table

SCHEMA = parquet.schema(
    [
        ("kernel_id", pa.string()),
        ("split_k", pa.int32()),
        ("problem_key", pa.string()),
        ("round", pa.int32()),
    ]
)
"""One row a chosen pair, by round, problem and candidate."""


class RoundRecord(Table):
    """One round of active measuring."""

    pairs: int
    picks_changed: float | None
    """Share of the picks that differ from those of the round before."""


class Record(Table):
    """All rounds of active measuring."""

    supported_training_pairs: int
    rounds: list[RoundRecord]


def read(path: Path) -> pa.Table:
    """Read a table of chosen pairs; ``UserError`` when it is another table."""
    found = parquet.read(path, SCHEMA)
    if b"tileseer" not in (found.schema.metadata or {}):
        raise UserError(f"{path}: this is no table of chosen pairs; delete it and run again")
    return found


def record(chosen: pa.Table) -> Record:
    """Record of the rounds, in the metadata of the table."""
    return checked(json.loads(chosen.schema.metadata[b"tileseer"]), Record, "the table of chosen pairs")


def wanted(pairs: pa.Table, problems: pa.Table, chosen: pa.Table | None) -> pa.ChunkedArray:
    """Rows of a support table that are to be measured: supported, and chosen or of a validation problem.

    Without ``chosen`` every supported pair is.
    """
    supported = support_table.supported(pairs)
    if chosen is None:
        return supported
    validating = problems.filter(pc.equal(problems["split"].cast(pa.string()), "validation"))["problem_key"]
    validates = pc.is_in(
        pairs["problem_key"].cast(pa.string()), value_set=validating.cast(pa.string()).combine_chunks()
    )
    picked = pc.is_in(pair_text(pairs), value_set=pair_text(chosen).combine_chunks())
    return pc.and_(supported, pc.or_(validates, picked))
