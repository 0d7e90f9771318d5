"""Taking over what the journals of other chunks hold: each of them is read once, however many chunks there are."""

import os
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_journal import DEVICE, append, measurement, rows, wanted

from tileseer.benchmark import journal, journal_index
from tileseer.core.errors import UserError

KERNELS = [f"{n:016x}" for n in range(12)]


@pytest.fixture
def work(monkeypatch):
    """Count journals that are read to index them, and lines that are read as measurements."""
    done = Counter()
    build, read_lines = journal_index.build, journal.read_lines

    def counting_build(path, size):
        done["indexed"] += 1
        return build(path, size)

    def counting_read(path, lines):
        done["lines"] += len(lines)
        return read_lines(path, lines)

    monkeypatch.setattr(journal_index, "build", counting_build)
    monkeypatch.setattr(journal, "read_lines", counting_read)
    return done


def measure(folder, chunks):
    """Run all chunks, one after the other, as the benchmark stage does: take over, then measure what is missing."""
    measured = 0
    for chunk in range(chunks):
        own = folder / f"{chunk}.csv"
        mine = [n for n in range(len(KERNELS)) if n % chunks == chunk]
        book = journal.Journal(own)
        have = set(journal.read(own)[0]["kernel_id"].to_pylist())
        missing = [n for n in mine if KERNELS[n] not in have]
        found = journal_index.from_neighbours(own, wanted(*missing), DEVICE)
        book.append(found)
        new = set(missing) - {KERNELS.index(kernel) for kernel in found["kernel_id"].to_pylist()}
        if new:
            book.append(rows(*(measurement(n) for n in sorted(new))))
        book.close()
        measured += len(new)
    return measured


@pytest.mark.parametrize("chunks", [3, 6, 12])
def test_the_work_grows_with_the_chunks_not_with_their_square(tmp_path, work, chunks):
    assert measure(tmp_path, chunks) == len(KERNELS)
    assert work == {"indexed": chunks - 1}
    work.clear()
    # Dealt anew: each journal is looked at once as it was, and once more after its own chunk took lines over.
    assert measure(tmp_path, chunks - 1) == 0
    assert work["indexed"] <= 2 * chunks
    assert work["lines"] <= len(KERNELS)


def test_a_journal_is_read_again_when_it_has_grown_or_its_index_is_damaged(tmp_path, work):
    append(tmp_path / "1.csv", measurement(1))
    own, beside = tmp_path / "0.csv", tmp_path / ".1.csv.index"

    def found():
        return journal_index.from_neighbours(own, wanted(1, 2), DEVICE)["kernel_id"].to_pylist()

    assert found() == found() == KERNELS[1:2] and work["indexed"] == 1
    append(tmp_path / "1.csv", measurement(2))
    assert found() == KERNELS[1:3] and work["indexed"] == 2
    content = beside.read_bytes()
    for damaged in (b"", content[:-1], content[:-3] + b"???", b"what is this?"):
        beside.write_bytes(damaged)
        assert found() == KERNELS[1:3]
    assert work["indexed"] == 6
    os.utime(tmp_path / "1.csv", ns=(1, 1))
    assert found() == KERNELS[1:3] and work["indexed"] == 7


def test_lines_that_are_no_measurement_are_passed_over(tmp_path):
    path = tmp_path / "1.csv"
    append(path, measurement(1), measurement(2))
    first, *lines = path.read_text().splitlines()
    path.write_text("\n".join([first, "", lines[0].replace("0.01", "0.02"), "a,b", lines[1], lines[1][:300], lines[0]]))
    # The last line has no end: its writer may still be at it.
    assert journal_index.from_neighbours(tmp_path / "0.csv", wanted(1, 2), DEVICE).num_rows == 1
    path.write_text("something else\n" * 3)
    with pytest.raises(UserError, match=r"1\.csv: line 1: the columns are not those of a journal"):
        journal_index.from_neighbours(tmp_path / "0.csv", wanted(1, 2), DEVICE)


@given(
    order=st.lists(st.sampled_from(range(4)), max_size=12),
    asked=st.sets(st.sampled_from(range(4))),
)
def test_exactly_the_lines_of_the_asked_kernels_are_read_in_their_order(order, asked, tmp_path_factory):
    path = tmp_path_factory.mktemp("order") / "j.csv"
    append(path, *(measurement(n, problem_idx=place) for place, n in enumerate(order)))
    lines = journal_index.of(path, np.array([KERNELS[n] for n in sorted(asked)], "S16"))
    read = journal.read_lines(path, lines.tolist()).to_pylist()
    whole = journal.read(path)[0].to_pylist()
    assert sorted(row["problem_idx"] for row in read) == [place for place, n in enumerate(order) if n in asked]
    for n in asked:
        assert [row for row in read if row["kernel_id"] == KERNELS[n]] == [
            row for row in whole if row["kernel_id"] == KERNELS[n]
        ]
