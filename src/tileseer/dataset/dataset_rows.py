"""The rows of a dataset between two passes: written to a file a chunk at a time, read back in the dataset's order.

A row is numbers only; kernels and problems stand once, in tables that fit into memory. So the memory is that of what is
added at a time and of one row group, however many rows there are.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tileseer.dataset.schema import BUILD, NAME, PROBLEM, SCHEMA

ROW_GROUP = 1 << 20
"""Rows of a row group of the dataset."""
SPAN = 1 << 18
"""Rows that are sorted at a time."""
ROW = np.dtype(
    [
        ("problem", "<i4"), ("build", "<i4"), ("split_k", "<i4"), ("status", "<i4"), ("reason", "<i4"),
        ("samples", "<i4"), ("non_zero", "<i8"), ("latency_ms", "<f8"), ("tflops", "<f8"), ("latency_cv", "<f8"),
        ("sentinel", "<f8"),
    ]
)  # fmt: skip
"""``problem`` is the rank of the problem's key, ``build`` a row of the build tables of all chunks, one after another;
``status`` and ``reason`` are numbers of words."""
NUMBERS = ("split_k", "samples", "non_zero", "latency_ms", "tflops", "latency_cv", "sentinel")
WORDS = ("status", "reason")
NONE = {"split_k": 0, "samples": -1, "non_zero": np.iinfo(np.int64).min}
"""Numbers in place of a null; for a float it is NaN, which no journal holds."""


class Rows:
    """The rows of all chunks: first ``add`` those of each chunk, then read them by ``groups``."""

    def __init__(self, file: BinaryIO, problems: pa.Table) -> None:
        by_key = pc.sort_indices(problems, [("problem_key", "ascending")])
        self._problems = problems.select(PROBLEM).take(by_key).combine_chunks()
        self._file = file
        self._builds: list[pa.Table] = []
        self._has_rows: list[np.ndarray] = []
        """Of each chunk, the kernels of its build table that have a row, bool."""
        self._runs: list[tuple[int, np.ndarray]] = []
        """Of each chunk the number of its first row, and the number of its rows of each problem."""
        self._words: dict[str, dict[str, int]] = {name: {} for name in WORDS}
        self.statuses: Counter[str] = Counter()
        self.length = 0

    def add(self, build: pa.Table, pairs: Mapping[str, pa.Array]) -> None:
        """Append a chunk; ``pairs`` are ``problem_key``, ``NUMBERS``, ``WORDS``, and ``build``, a row of that table."""
        rows = np.empty(len(pairs["build"]), ROW)
        rows["problem"] = pc.index_in(pairs["problem_key"], value_set=self._problems["problem_key"].combine_chunks())
        rows["build"] = pairs["build"]
        self._has_rows.append(np.bincount(rows["build"], minlength=build.num_rows) > 0)
        rows["build"] += sum(table.num_rows for table in self._builds)
        self._builds.append(build.select([*BUILD, "alias_of"]))
        for name in WORDS:
            rows[name] = _numbers(pairs[name], self._words[name])
        for name in NUMBERS:
            rows[name] = pc.fill_null(pairs[name], NONE.get(name, np.nan))
        self._file.write(rows[np.argsort(rows["problem"], kind="stable")].tobytes())
        counts = np.bincount(rows["problem"], minlength=self._problems.num_rows)
        self._runs.append((self.length, counts.astype(np.int32)))
        self.statuses.update({count["values"]: count["counts"] for count in pairs["status"].value_counts().to_pylist()})
        self.length += len(rows)

    def groups(self) -> Iterator[pa.Table]:
        """Yield all rows (``SCHEMA``) by problem, kernel and split-K, ``ROW_GROUP`` at a time."""
        builds = pa.concat_tables(self._builds).combine_chunks()
        by_problem = sum((counts for _, counts in self._runs), np.zeros(self._problems.num_rows, np.int64))
        sources = [
            (_typed(builds, np.concatenate(self._has_rows)), "build"),
            (_typed(self._problems, by_problem > 0), "problem"),
        ]
        for name, known in self._words.items():
            words = pa.table({name: pa.array(known, pa.string())})
            sources.append((_typed(words, np.ones(len(known), bool)), name))
        kernel = pc.rank(builds["kernel"], tiebreaker="dense").to_numpy()
        for rows in self._sorted(by_problem, kernel):
            # Nothing of a group may live on in here while the next one is made.
            yield _as_arrow(rows, sources)

    def _sorted(self, by_problem: np.ndarray, kernel: np.ndarray) -> Iterator[np.ndarray]:
        """Yield ``ROW_GROUP`` rows at a time, at least once; ``kernel`` ranks the rows of the build tables.

        Each time it is the same memory.
        """
        group, filled = np.empty(min(ROW_GROUP, self.length), ROW), 0
        for first, last in _spans(by_problem):
            part = np.concatenate([self._read(start, counts, first, last) for start, counts in self._runs])
            part = part[np.lexsort((part["split_k"], kernel[part["build"]], part["problem"]))]
            while filled + len(part) >= ROW_GROUP:
                room = ROW_GROUP - filled
                group[filled:] = part[:room]
                yield group
                part, filled = part[room:], 0
            group[filled : filled + len(part)] = part
            filled += len(part)
        if filled or not self.length:
            yield group[:filled]

    def _read(self, start: int, counts: np.ndarray, first: int, last: int) -> np.ndarray:
        """Rows of a chunk about some problems: they stand together."""
        self._file.seek((start + int(counts[:first].sum())) * ROW.itemsize)
        return np.frombuffer(self._file.read(int(counts[first:last].sum()) * ROW.itemsize), ROW)


def _as_arrow(rows: np.ndarray, sources: Sequence[tuple[pa.Table, str]]) -> pa.Table:
    """Rows in the columns of ``SCHEMA``; each source has some of them, at the numbers of one field."""
    columns = {name: _numeric(rows[name], name) for name in NUMBERS}
    for source, index in sources:
        taken = source.take(pa.array(rows[index]))
        columns |= dict(zip(taken.column_names, taken.columns, strict=True))
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _spans(rows: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield ranges of problems with up to ``SPAN`` rows together, or of one problem; ``rows`` are those of each."""
    ends = np.cumsum(rows)
    first, done = 0, 0
    while first < len(rows):
        last = max(first + 1, int(np.searchsorted(ends, done + SPAN, side="right")))
        yield first, last
        first, done = last, int(ends[last - 1])


def _numbers(words: pa.Array, known: dict[str, int]) -> np.ndarray:
    """Number of each word; a new word gets the next one."""
    encoded = words.dictionary_encode()
    numbers = [known.setdefault(word, len(known)) for word in encoded.dictionary.to_pylist()]
    return np.array(numbers, np.int32)[encoded.indices.to_numpy()]


def _numeric(values: np.ndarray, name: str) -> pa.Array:
    none = NONE.get(name)
    missing = np.isnan(values) if values.dtype.kind == "f" else values == none if none is not None else None
    return pa.array(values, SCHEMA.field(name).type, mask=missing)


def _typed(table: pa.Table, present: np.ndarray) -> pa.Table:
    """Table in the types of ``SCHEMA``: names over an alphabetical dictionary of those that are present."""
    columns = {}
    for name in table.column_names:
        values, type_ = table[name].combine_chunks(), SCHEMA.field(name).type
        if type_ == NAME:
            words = pc.unique(values.filter(pa.array(present))).sort()
            columns[name] = pa.DictionaryArray.from_arrays(pc.index_in(values, value_set=words), words)
        else:
            columns[name] = values.cast(type_)
    return pa.table(columns)
