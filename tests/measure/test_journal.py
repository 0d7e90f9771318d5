"""What a journal keeps: whole rows as they were, and nothing else, whatever happened to the file."""

import os
import sys
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileseer.core.errors import UserError
from tileseer.measure import benchmark, journal, receipt
from tileseer.measure.journal import COLUMNS, Journal

MIB = 1 << 20
DEVICE = journal.MeasuredBy("gfx950", "toy", "simulated", "c" * 16)


def measurement(number=0, **changes):
    row = dict.fromkeys(COLUMNS, 1) | {
        "kernel": "grouped_conv_x", "latency_ms": 0.125 + number, "tflops": 3.0, "non_zero": None, "status": "ok",
        "error": "", "latency_cv": 0.01, "kernel_id": f"{number:016x}", "problem_key": "b" * 16, "arch": "gfx950",
        "device": "toy", "device_kind": "simulated", "measurement_id": "c" * 16,
    }  # fmt: skip
    return row | changes


def rows(*measurements):
    return pa.Table.from_pylist(list(measurements), schema=journal.SCHEMA)


def append(path, *measurements):
    book = Journal(path)
    book.append(rows(*measurements))
    book.close()


def test_a_second_writer_is_told_who_writes(tmp_path):
    path = tmp_path / "new" / "j.csv"
    with Journal(path), pytest.raises(UserError, match=rf"j\.csv was busy .* process {os.getpid()} of .*timeout_s"):
        Journal(path)
    append(path, measurement())
    assert names(path.parent) == ["j.csv"]


def test_the_columns_begin_with_those_of_the_reference_and_rows_are_read_back_exactly(tmp_path):
    assert ",".join(COLUMNS).startswith(
        "kernel,problem_idx,N,C,K,G,Di,Hi,Wi,Z,Y,X,stride_d,stride_h,stride_w,pad_d,pad_h,pad_w,"
        "dilation_d,dilation_h,dilation_w,latency_ms,tflops,non_zero,status"
    )
    failed = measurement(1, status="crash", error="crash", latency_ms=None, tflops=None, latency_cv=None)
    append(tmp_path / "j.csv", measurement(0, latency_ms=0.1 + 0.2))
    append(tmp_path / "j.csv", failed)
    found, malformed = journal.read_journal(tmp_path / "j.csv")
    assert found == rows(measurement(0, latency_ms=0.1 + 0.2), failed) and not malformed.num_rows


def forged(line, **changes):
    """A row with other values and a checksum that fits."""
    fields = dict(zip(COLUMNS, line.decode().split(",")[:-1], strict=True)) | changes
    text = ",".join(fields.values()).encode("latin1")
    return b"%s,%08x" % (text, zlib.crc32(text))


CHECKSUM = "its checksum does not fit"
FIELDS = "other fields than those of a row"
VALUES = "no such status, or no such time"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"one,two", CHECKSUM),
        (b'"unclosed,quote', CHECKSUM),
        (b"", "an empty line"),
        (b"\0" * 5 * MIB, "longer than any row"),
        (b"," * 3 * MIB, "longer than any row"),
        ({"error": "x" * 3 * MIB}, "longer than any row"),
        ({"latency_ms": "fast"}, FIELDS),
        ({"kernel": "one,two"}, FIELDS),
        ({"error": "\xff\xfe"}, FIELDS),
        *(({"latency_ms": value}, VALUES) for value in ("", "0", "-0.001", "inf", "nan", "1e99")),
        *(({"tflops": value}, VALUES) for value in ("", "nan", "-1")),
        ({"samples": str(2**63 - 1)}, VALUES),
        ({"samples": ""}, VALUES),
        ({"status": "fine"}, VALUES),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_line_that_is_none_is_passed_over_and_reported(tmp_path, content, reason):
    path = tmp_path / "j.csv"
    append(path, measurement(0), measurement(1))
    header, first, second = path.read_bytes().splitlines()
    line = content if isinstance(content, bytes) else forged(first, **content)
    path.write_bytes(b"\n".join([header, first, line, b"torn", second]) + b"\n")
    append(path, measurement(2))
    found, malformed = journal.read_journal(path, DEVICE)
    assert found == rows(measurement(0), measurement(1), measurement(2))
    assert malformed["line"].to_pylist() == [3, 4]
    assert malformed["reason"].to_pylist() == [reason, CHECKSUM]


@pytest.mark.parametrize("torn", [0, 50])
@pytest.mark.parametrize("tail", [b"\0" * 2 * MIB, b'"' * 3 * MIB + b"\n", bytes(range(256)) * 9000])
def test_a_long_torn_tail_blocks_nobody(tmp_path, torn, tail):
    path = tmp_path / "j.csv"
    append(path, measurement(0), measurement(1))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - torn] + tail)
    append(path, measurement(2))
    numbers = (0, 2) if torn else (0, 1, 2)
    assert journal.read_journal(path)[0] == rows(*(measurement(number) for number in numbers))


def test_the_memory_does_not_depend_on_the_length_of_a_line(tmp_path):
    path = tmp_path / "j.csv"
    append(path, measurement(0))
    os.truncate(path, path.stat().st_size + 400 * MIB)
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_DATA, (700 << 20,) * 2); from pathlib import Path; "
        "from tileseer.measure import journal; assert journal.read_journal(Path(sys.argv[1]))[0].num_rows == 1"
    )
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code, str(path)]) == 0


def test_what_is_reported_of_a_line_does_nothing_to_a_terminal(tmp_path):
    path = tmp_path / "j.csv"
    append(path, measurement(0))
    path.write_bytes(path.read_bytes() + b"\x1b[2J\0\ttab\xff" + b"x" * 1000 + b"\n")
    [fault] = journal.read_journal(path)[1].to_pylist()
    assert fault["text"].startswith(r"\u001b[2J\u0000\ttab\xffx") and fault["text"].isprintable()
    assert len(fault["text"]) < 600


def test_a_file_that_is_no_journal_is_refused(tmp_path):
    path = tmp_path / "j.csv"
    path.write_text("kernel,latency\n")
    for use in (journal.read_journal, Journal):
        with pytest.raises(UserError, match=r"j\.csv: line 1"):
            use(path)
    assert path.read_text() == "kernel,latency\n"
    assert names(tmp_path) == [path.name]


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("fuzz") / "j.csv"
    append(path, measurement(0))
    with path.open("ab") as stream:
        stream.write(content)
    append(path, measurement(1))
    found, _ = journal.read_journal(path)
    assert found["kernel_id"].to_pylist() == [f"{0:016x}", f"{1:016x}"]


def test_a_full_disk_is_an_error_that_names_the_journal(tmp_path):
    with Journal(tmp_path / "j.csv") as book, Path("/dev/full").open("r+b", buffering=0) as full:
        os.dup2(full.fileno(), book._file)
        with pytest.raises(OSError, match=r"No space left on device: '.*/j\.csv'"):
            book.append(rows(measurement()))


def test_a_journal_behind_a_link_is_written_there_and_never_replaced(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "j.csv").symlink_to(disk / "j.csv")
    (disk / "j.csv").touch()
    compress(tmp_path / "j.csv", measurement())
    assert (tmp_path / "j.csv").is_symlink() and journal.read_journal(disk / "j.csv")[0].num_rows == 1


@pytest.mark.parametrize("link", ["journals", "journals/j.csv"])
def test_a_journal_on_a_disk_that_is_not_mounted_is_told_and_not_made_anew(link, tmp_path):
    place = tmp_path / link
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(tmp_path / "disk/what was measured")
    with pytest.raises(UserError, match=f"{link} is a link to .*/disk/what was measured, which is not there"):
        Journal(tmp_path / "journals/j.csv")
    assert place.is_symlink() and not (tmp_path / "disk").exists()


def wanted(*numbers):
    pairs = [{"kernel_id": f"{n:016x}", "split_k": 1, "problem_key": "b" * 16} for n in numbers]
    return pa.Table.from_pylist(
        pairs, pa.schema([("kernel_id", pa.string()), ("split_k", pa.int32()), ("problem_key", pa.string())])
    )


def test_only_measurements_of_this_device_for_wanted_pairs_count_once():
    book = rows(
        measurement(0, measurement_id="d" * 16),
        measurement(1),
        measurement(2, split_k=4),
        measurement(1, latency_ms=9.0),
        measurement(3),
    )
    found = receipt.counted(DEVICE.rows(book), wanted(1, 0, 2))
    assert found["latency_ms"].to_pylist() == [1.125]
    assert receipt.counted(DEVICE.rows(book), wanted(3, 1))["kernel_id"].to_pylist() == [f"{n:016x}" for n in (3, 1)]


def test_measurements_in_the_journal_of_another_chunk_are_taken_over(tmp_path):
    append(tmp_path / "0.csv", measurement(0))
    append(tmp_path / "1.csv", measurement(1), measurement(1, latency_ms=9.0))
    append(tmp_path / "2.csv", measurement(2), measurement(3, measurement_id="d" * 16))
    found = benchmark.rows_of_neighbours(tmp_path / "0.csv", wanted(3, 2, 1, 0), DEVICE)
    assert found["kernel_id"].to_pylist() == [f"{n:016x}" for n in (2, 1)]
    assert found["latency_ms"].to_pylist() == [2.125, 1.125]


def test_the_digest_is_about_measurements_not_about_their_order_or_index():
    book = rows(measurement(0), measurement(1))
    other = rows(measurement(1, problem_idx=7), measurement(0))
    assert receipt.digest_rows(book) == receipt.digest_rows(other)
    assert receipt.digest_rows(book) != receipt.digest_rows(rows(measurement(0), measurement(1, tflops=4.0)))


@given(data=st.data())
def test_a_line_with_any_one_wrong_bit_is_no_measurement(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("damaged") / "j.csv"
    append(path, *(measurement(number) for number in range(3)))
    content = bytearray(path.read_bytes())
    header = content.index(b"\n") + 1
    content[data.draw(st.integers(header, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    sound = rows(*(measurement(number) for number in range(3))).to_pylist()
    path.write_bytes(content)
    found, _ = journal.read_journal(path)
    assert found.num_rows < 3
    assert all(row in sound for row in found.to_pylist())


def names(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def compress(path, *measurements):
    with Journal(path) as book:
        if measurements:
            book.append(rows(*measurements))
        book.compress()


def test_a_job_that_ended_leaves_columns_and_the_next_one_adds_its_own(tmp_path):
    path = tmp_path / "j.csv"
    failed = measurement(1, status="crash", error="Gerät weg", latency_ms=None, tflops=None, latency_cv=None)
    # As an earlier version left it, or a job that was killed.
    append(path, measurement(0, latency_ms=0.1 + 0.2), failed)
    compress(path)
    assert names(tmp_path) == ["j.1.parquet"]
    compress(path)
    assert names(tmp_path) == ["j.1.parquet"]
    compress(path, measurement(2))
    append(path, measurement(3))
    assert names(tmp_path) == ["j.1.parquet", "j.2.parquet", "j.csv"]
    found, _ = journal.read_journal(path)
    assert found == rows(measurement(0, latency_ms=0.1 + 0.2), failed, measurement(2), measurement(3))
    assert journal.read_journal(path, columns=["latency_ms"], kernel_ids=pa.array([f"{2:016x}"]))[0].to_pylist() == [
        {"latency_ms": 2.125}
    ]
    assert journal.read_journal(path, DEVICE._replace(device="other"))[0].num_rows == 0


def test_lines_among_which_one_is_damaged_stay(tmp_path):
    path = tmp_path / "j.csv"
    append(path, measurement(0), measurement(1))
    os.truncate(path, path.stat().st_size - 10)
    text = path.read_bytes()
    compress(path)
    compress(path, measurement(2))
    assert names(tmp_path) == ["j.1.csv", "j.2.parquet"] and (tmp_path / "j.1.csv").read_bytes() == text
    found, malformed = journal.read_journal(path)
    assert found == rows(measurement(0), measurement(2))
    [fault] = malformed.to_pylist()
    assert (fault["journal"], fault["line"]) == (str(tmp_path / "j.1.csv"), 3)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_damaged_columns_are_refused_with_the_fix(tmp_path, damage):
    path, columns = tmp_path / "j.csv", tmp_path / "j.1.parquet"
    compress(path, *(measurement(number) for number in range(9)))
    content = bytearray(columns.read_bytes())
    content[len(content) // 2] ^= 1
    columns.write_bytes({"flip": content, "cut": content[:-9], "empty": b""}[damage])
    with pytest.raises(UserError, match=r"j\.1\.parquet: changed or damaged .* its pairs are measured again"):
        journal.read_journal(path)
    # As the message says: they are moved away, and their place is free.
    columns.unlink()
    compress(path, measurement(1))
    assert journal.read_journal(path)[0] == rows(measurement(1))


def test_who_reads_while_lines_become_columns_gets_each_row_once(tmp_path, monkeypatch):
    path = tmp_path / "j.csv"
    append(path, measurement(0), measurement(1))
    files, calls = journal.journal_files, []

    def listed(journal):
        found = files(journal)
        calls.append(found)
        if len(calls) in (1, 3):
            # In the first try the lines are gone when they are read, in the second one others take their place.
            compress(path, *([measurement(2)] if len(calls) == 3 else []))
        return found

    monkeypatch.setattr(journal, "journal_files", listed)
    assert journal.read_journal(path)[0] == rows(*(measurement(number) for number in range(3)))
