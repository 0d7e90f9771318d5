"""Parquet files between the stages: the same rows give the same bytes, and a damaged file is named."""

import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tileseer.core.atomic import flush, replacing
from tileseer.core.errors import UserError
from tileseer.core.reading import opened

KEY_COLUMNS = ("kernel", "kernel_id", "candidate", "split_k", "problem_key")
"""Columns by which tables are joined."""
LARGEST_FILE, LARGEST_VALUES, VALUES_OF_A_BYTE = 2**33, 2**28, 8
"""Bytes of a file, and of the values of a table: the latter grow with the file."""
BYTES_OF_A_VALUE, MOST_PARTS, LONGEST_TEXT = 8, 100_000, 2**16
_KINDS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string)
"""Types of values that a table has, alone, coded or in lists."""
WRITTEN = {"compression": "zstd", "version": "2.6", "write_page_checksum": True}
REMAKE = "fetch it again (git checkout of what the repository has), or delete it and repeat the run that made it"


def write_table(table: pa.Table, path: Path) -> None:
    """Write ``table`` atomically."""
    # Arrow opens files whose names are UTF-8 alone, Python any.
    with replacing(path) as temporary, temporary.open("wb") as stream:
        pq.write_table(table, stream, **WRITTEN)


@contextmanager
def table_writer(path: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Yield a writer for a table that does not fit into memory; the file appears when all of it is on the disk."""
    with replacing(path) as temporary:
        with (
            temporary.open("wb") as stream,
            pq.ParquetWriter(stream, schema, **WRITTEN) as writer,
        ):
            yield writer
        flush(temporary)


def read_table(
    path: Path, expected: pa.Schema | None = None, *, columns: Collection[str] | None = None, bounded: bool = True
) -> pa.Table:
    """Read a table of an earlier stage; of ``columns`` those that the file has, by default all of it.

    A missing or damaged file, or one without a column of ``expected`` or with an empty cell where it allows none, is a
    ``UserError``; so is one whose values would need far more memory than the file has bytes, if it is ``bounded``.
    """
    try:
        with opened(path, LARGEST_FILE) as stream:
            most = LARGEST_VALUES + VALUES_OF_A_BYTE * path.stat().st_size if bounded else sys.maxsize
            table = _read_bounded(pq.ParquetFile(stream), stream, columns, most)
    except MemoryError as error:
        raise UserError(f"{path}: its values would need more than {most:,} bytes; this is no table of ours") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        # Of a damaged page Arrow says OSError, without the number that an error of the system has.
        if isinstance(error, OSError) and error.errno:
            raise
        why = " ".join(str(error).split())
        raise UserError(f"{path}: this is no readable Parquet file ({why}); {REMAKE}") from error
    check_columns(table, expected or pa.schema([]), path)
    return table


def check_columns(table: pa.Table, expected: pa.Schema, path: Path) -> None:
    """Raise a ``UserError`` if a table of ``path`` lacks a column, or has another type or an empty cell in one."""
    for field in expected:
        if table.schema.names.count(field.name) != 1:
            raise UserError(f"{path}: there is no column {field.name}: another table, or damaged; {REMAKE}")
        actual, required = _value_type(table.schema.field(field.name)), _value_type(field)
        if actual != required:
            raise UserError(
                f"{path}: column {field.name} holds {actual}, not {required}: another table, or damaged; {REMAKE}"
            )
    refuse_empty(table, [*KEY_COLUMNS, *(field.name for field in expected if not field.nullable)], path)


def _read_bounded(file: pq.ParquetFile, stream: BinaryIO, columns: Collection[str] | None, most: int) -> pa.Table:
    """Read some columns; ``MemoryError`` if their values need more than ``most`` bytes, before they are made.

    A run of equal values takes a few bytes of a file. Texts are read as a dictionary, since each may be a long one.
    """
    found = file.metadata
    if found.num_row_groups * found.num_columns > MOST_PARTS:
        raise MemoryError
    groups = [found.row_group(number) for number in range(found.num_row_groups)]
    parts = [group.column(number) for group in groups for number in range(found.num_columns)]
    own = [part for part in parts if columns is None or part.path_in_schema.partition(".")[0] in columns]
    if sum(max(part.num_values * BYTES_OF_A_VALUE, part.total_uncompressed_size) for part in own) > most:
        raise MemoryError
    names = [name for name in file.schema_arrow.names if columns is None or name in columns]
    if len(set(names)) < len(names):
        raise pa.ArrowInvalid("a column stands there twice")
    for field in map(file.schema_arrow.field, names):
        kind = field.type.value_type if pa.types.is_list(field.type) else _value_type(field)
        if not any(is_kind(kind) for is_kind in _KINDS):
            raise pa.ArrowInvalid(f"column {field.name} holds {field.type}")
    texts = [name for name in names if _value_type(file.schema_arrow.field(name)) == pa.string()]
    # Threads that read a stream of Python outlive the read, and end the process by an abort, or never (Arrow's #50482).
    whole = pq.ParquetFile(stream, metadata=found, read_dictionary=texts, page_checksum_verification=True)
    table = whole.read(names, use_threads=False)
    for name in texts:
        for chunk in table[name].chunks:
            if (pc.max(pc.binary_length(chunk.dictionary)).as_py() or 0) > LONGEST_TEXT:
                raise pa.ArrowInvalid(f"column {name} has a text of more than {LONGEST_TEXT:,} bytes")
            chunk.dictionary.validate(full=True)  # of texts, that they are UTF-8
    codes = [chunk for name in texts for chunk in table[name].chunks]
    if sum(pc.sum(pc.binary_length(each.dictionary).take(each.indices)).as_py() or 0 for each in codes) > most:
        raise MemoryError
    return table.cast(pa.schema([file.schema_arrow.field(name) for name in names], table.schema.metadata))


def _value_type(field: pa.Field) -> pa.DataType:
    """Return the type of a column's values, coded or not, with offsets of whatever width."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return pa.string() if pa.types.is_large_string(kind) else kind


def schema(columns: Iterable[tuple[str, pa.DataType]], may_be_empty: Collection[str] = ()) -> pa.Schema:
    """Return a schema whose columns have a value in every row, but for those that ``may_be_empty``."""
    return pa.schema([pa.field(name, kind, name in may_be_empty) for name, kind in columns])


def refuse_empty(table: pa.Table, columns: Iterable[str], path: Path) -> None:
    """Raise a ``UserError`` if one of ``columns`` has an empty cell in a table of ``path``."""
    for name in columns:
        if name in table.schema.names and table[name].null_count:
            raise UserError(f"{path}: column {name} has empty cells; {REMAKE}")
