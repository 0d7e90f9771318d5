"""Parquet files between the stages: the same rows give the same bytes, and a damaged file is named."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tileseer.core.atomic import flush, replacing
from tileseer.core.errors import UserError

KEY_COLUMNS = ("kernel", "kernel_id", "candidate", "split_k", "problem_key")
"""Columns by which tables are joined."""


def write_table(table: pa.Table, path: Path) -> None:
    """Write ``table`` atomically."""
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", version="2.6")


@contextmanager
def table_writer(path: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Yield a writer for a table that does not fit into memory; the file appears when all of it is on the disk."""
    with replacing(path) as temporary:
        with pq.ParquetWriter(temporary, schema, compression="zstd", version="2.6") as writer:
            yield writer
        flush(temporary)


def read_table(path: Path, expected: pa.Schema | None = None, *, columns: list[str] | None = None) -> pa.Table:
    """Read a table of an earlier stage.

    A missing or damaged file, or one without a column of ``expected`` or with an empty cell where it allows none, is a
    ``UserError``.
    """
    if not path.is_file():
        # Arrow takes a missing file for a damaged one, and a folder for a table of all that is in it.
        raise UserError(f"{path}: {'a folder, no file' if path.is_dir() else 'there is no such file'}")
    try:
        table = pq.read_table(path, columns=columns)
    except UnicodeEncodeError as error:
        raise UserError(f"{path}: Arrow opens files with names in UTF-8 only; rename it") from error
    except (pa.ArrowException, OSError) as error:
        # Of a damaged page Arrow says OSError, without the number that an error of the system has.
        if isinstance(error, OSError) and error.errno:
            raise
        raise UserError(f"{path}: this is no readable Parquet file ({error}); delete it and run again") from error
    for field in expected or ():
        if field.name not in table.schema.names:
            raise UserError(f"{path}: there is no column {field.name}: another table, or damaged; make it again")
        actual, required = _value_type(table.schema.field(field.name)), _value_type(field)
        if actual != required:
            raise UserError(
                f"{path}: column {field.name} holds {actual}, not {required}: another table, or damaged; make it again"
            )
    refuse_empty(table, [*KEY_COLUMNS, *(field.name for field in expected or () if not field.nullable)], path)
    return table


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
            raise UserError(f"{path}: column {name} has empty cells; delete the file and make it again")
