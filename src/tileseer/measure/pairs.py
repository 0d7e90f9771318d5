"""What names a measured pair in every table of the benchmark stage."""

import pyarrow as pa
import pyarrow.compute as pc

IDENTITY = ("kernel_id", "split_k", "problem_key")


def pair_text(rows: pa.Table) -> pa.ChunkedArray:
    """Name of the pair of each row."""
    return pc.binary_join_element_wise(*(rows[column].cast(pa.string()) for column in IDENTITY), "/")
