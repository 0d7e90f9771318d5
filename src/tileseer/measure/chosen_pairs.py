"""Table of the pairs that active measuring chose, and which pairs are to be measured because of it."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tileseer.core import parquet
from tileseer.core.errors import UserError
from tileseer.core.tables import StrictModel, validate_table
from tileseer.measure import support_table
from tileseer.measure.pairs import pair_text

SCHEMA = parquet.schema(
    [("kernel_id", pa.string()), ("split_k", pa.int32()), ("problem_key", pa.string()), ("round", pa.int32())]
)
"""One row a chosen pair, by round, problem and candidate."""


class RoundRecord(StrictModel):
    """One round of active measuring."""

    pairs: int
    picks_changed: float | None
    """Share of the picks that differ from those of the round before."""


class ActiveRecord(StrictModel):
    """All rounds of active measuring."""

    supported_training_pairs: int
    rounds: list[RoundRecord]


def read_chosen_pairs(path: Path) -> pa.Table:
    """Read a table of chosen pairs; ``UserError`` when it is another table."""
    table = parquet.read_table(path, SCHEMA)
    if b"tileseer" not in (table.schema.metadata or {}):
        raise UserError(f"{path}: this is no table of chosen pairs; delete it and run again")
    return table


def read_record(chosen: pa.Table) -> ActiveRecord:
    """Record of the rounds, in the metadata of the table."""
    return validate_table(json.loads(chosen.schema.metadata[b"tileseer"]), ActiveRecord, "the table of chosen pairs")


def pairs_to_measure(pairs: pa.Table, problems: pa.Table, chosen: pa.Table | None) -> pa.ChunkedArray:
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
