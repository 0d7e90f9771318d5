"""The rows of a dataset between two passes: written to files a chunk at a time, read back in the dataset's order.

A row is numbers only; kernels and problems stand once, in tables that fit into memory. So the memory is that of what is
added at a time, of one part of the problems and of one row group, however many rows there are.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tileseer.benchmark.chunk_parts import Spill
from tileseer.dataset.schema import BUILD, NAME, PROBLEM, SCHEMA

ROW_GROUP = 1 << 20
"""Rows of a row group of the dataset."""
PARTS = 64
"""Parts of the problems, sorted one at a time: of a hundred million rows each takes 100 MB."""
NUMBERS = ("split_k", "samples", "non_zero", "latency_ms", "tflops", "latency_cv", "sentinel")
WORDS = ("status", "reason")
ROW = pa.schema(
    [*((name, pa.int32()) for name in ("problem", "build", *WORDS)), *(SCHEMA.field(name) for name in NUMBERS)]
)
"""``problem`` is the rank of the problem's key, ``build`` a row of the build tables of all chunks, one after another;
``status`` and ``reason`` are numbers of words."""


class Rows:
    """The rows of all chunks: first ``add`` those of each chunk, then read them by ``groups``."""

    def __init__(self, folder: Path, problems: pa.Table) -> None:
        """Files lie in ``folder``, without names."""
        by_key = pc.sort_indices(problems, [("problem_key", "ascending")])
        self._problems = problems.select(PROBLEM).take(by_key).combine_chunks()
        count = problems.num_rows
        parts = min(PARTS, count)
        self._part_of = np.arange(count) * parts // max(count, 1)
        self._has_problem = np.zeros(count, bool)
        self._spills = Spill(parts, ROW, folder)
        self._builds: list[pa.Table] = []
        self._has_build: list[np.ndarray] = []
        """Of each chunk, the kernels of its build table that have a row, bool."""
        self._words: dict[str, dict[str, int]] = {name: {} for name in WORDS}
        self.statuses: Counter[str] = Counter()
        self.length = 0

    def add(self, build: pa.Table, pairs: Mapping[str, pa.Array]) -> None:
        """Append a chunk; ``pairs`` are ``problem_key``, ``NUMBERS``, ``WORDS``, and ``build``, a row of that table."""
        problem = pc.index_in(pairs["problem_key"], value_set=self._problems["problem_key"].combine_chunks()).to_numpy()
        kernel = pairs["build"].to_numpy()
        columns = {
            **pairs,
            "problem": problem,
            "build": kernel + sum(table.num_rows for table in self._builds),
            **{name: _numbers(pairs[name], known) for name, known in self._words.items()},
        }
        self._spills.add(pa.table({name: columns[name] for name in ROW.names}).cast(ROW), self._part_of[problem])
        self._has_problem[problem] = True
        self._has_build.append(np.bincount(kernel, minlength=build.num_rows) > 0)
        self._builds.append(build.select([*BUILD, "alias_of"]))
        self.statuses.update({count["values"]: count["counts"] for count in pairs["status"].value_counts().to_pylist()})
        self.length += len(problem)

    def groups(self) -> Iterator[pa.Table]:
        """Yield all rows (``SCHEMA``) by problem, kernel and split-K, ``ROW_GROUP`` at a time, at least once."""
        builds = pa.concat_tables(self._builds).combine_chunks()
        sources = [
            (typed(builds, np.concatenate(self._has_build)), "build"),
            (typed(self._problems, self._has_problem), "problem"),
        ]
        for name, known in self._words.items():
            words = pa.table({name: pa.array(known, pa.string())})
            sources.append((typed(words, np.ones(len(known), bool)), name))
        kernel = pc.rank(builds["kernel"], tiebreaker="dense")
        order = [(name, "ascending") for name in ("problem", "kernel", "split_k")]
        left = ROW.empty_table()
        for part in range(int(self._part_of.max(initial=-1)) + 1):
            rows = self._spills.read(part)
            rows = rows.append_column("kernel", kernel.take(rows["build"])).sort_by(order)
            left = pa.concat_tables([left, rows.select(ROW.names)])
            while left.num_rows >= ROW_GROUP:
                # Nothing of a group may live on in here while the next one is made.
                yield _as_arrow(left.slice(0, ROW_GROUP), sources)
                left = left.slice(ROW_GROUP)
        if left.num_rows or not self.length:
            yield _as_arrow(left, sources)


def _as_arrow(rows: pa.Table, sources: Sequence[tuple[pa.Table, str]]) -> pa.Table:
    """Rows in the columns of ``SCHEMA``; each source has some of them, at the numbers of one field."""
    rows = rows.combine_chunks()
    columns = {name: rows[name] for name in NUMBERS}
    # What is measured here is offered by no library.
    columns["rank"] = pa.nulls(len(rows), SCHEMA.field("rank").type)
    for source, index in sources:
        taken = source.take(rows[index].combine_chunks())
        columns |= dict(zip(taken.column_names, taken.columns, strict=True))
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _numbers(words: pa.Array, known: dict[str, int]) -> np.ndarray:
    """Number of each word; a new word gets the next one."""
    encoded = words.dictionary_encode()
    numbers = [known.setdefault(word, len(known)) for word in encoded.dictionary.to_pylist()]
    return np.array(numbers, np.int32)[encoded.indices.to_numpy()]


def typed(table: pa.Table, present: np.ndarray) -> pa.Table:
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
