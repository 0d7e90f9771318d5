"""Journals after power losses and with forged rows: what is no row costs nothing but its own pair, and stops nobody."""

import os
import shutil
import sys
import zlib
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import stages_by_hand

JOURNAL = Path("journals/0.csv")
BEFORE = ("arch_specs", "configs", "problems", "headers", "compile", "support", "benchmark", "dataset")
STAGES = {stage.name: stage for stage in stages_by_hand.STAGES}
MIB = 1 << 20


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A folder in which the stages have run up to the dataset."""
    folder = tmp_path_factory.mktemp("attacked") / "work"
    stages_by_hand.lay_out(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in BEFORE:
            assert STAGES[name].run() == 0
    return folder


@pytest.fixture
def lines(measured, tmp_path, monkeypatch):
    """The journal's lines in a copy of that folder, which is the current one."""
    shutil.copytree(measured, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return JOURNAL.read_bytes().splitlines(keepends=True)


def rerun(capfd):
    """Benchmark and dataset stage once more; the pairs that were measured, and the rows of the dataset."""
    capfd.readouterr()
    for name in ("benchmark", "dataset"):
        assert STAGES[name].run() == 0
    said = capfd.readouterr().out
    return int(said.split("chunk 0: ")[1].split(" pairs measured")[0]), pq.read_table("made/dataset.parquet")


def forged(line, **changes):
    """A row with other values and a checksum that fits."""
    names = JOURNAL.read_text().splitlines()[0].split(",")[:-1]
    fields = dict(zip(names, line.decode().rstrip("\n").split(",")[:-1], strict=True)) | changes
    text = ",".join(fields.values()).encode("latin1")
    return b"%s,%08x\n" % (text, zlib.crc32(text))


TAILS = {
    "NULs": (0, b"\0" * (2 * MIB)),
    "NULs after a torn line": (50, b"\0" * (2 * MIB)),
    "NULs with an end": (0, b"\0" * (5 * MIB) + b"\n"),
    "commas": (0, b"," * (5 * MIB)),
    "quotes": (0, b'"' * (3 * MIB) + b"\n"),
    "carriage returns": (0, b"\r" * (3 * MIB)),
    "37 commas and a long text": (0, b"," * 37 + b"x" * (3 * MIB) + b"\n"),
    "bytes": (10, bytes(range(256)) * 9000),
}


@pytest.mark.parametrize("torn, tail", TAILS.values(), ids=TAILS)
def test_a_long_torn_tail_blocks_nobody(lines, capfd, torn, tail):
    before = pq.read_table("made/dataset.parquet")
    content = b"".join(lines)
    JOURNAL.write_bytes(content[: len(content) - torn] + tail)
    assert rerun(capfd) == (bool(torn), before)
    assert rerun(capfd) == (0, before)


def test_a_header_without_an_end(lines, capfd):
    before = pq.read_table("made/dataset.parquet")
    JOURNAL.write_bytes(lines[0].rstrip(b"\n"))
    assert STAGES["dataset"].run() == 2
    assert rerun(capfd) == (len(lines) - 1, before)


@pytest.mark.parametrize("size, measured_again", [(3 * MIB // 2, 0), (3 * MIB, 1)])
def test_a_long_row_with_a_checksum_that_fits(lines, capfd, size, measured_again):
    long = forged(lines[1], status="crash", error="x" * size, latency_ms="", tflops="", latency_cv="")
    JOURNAL.write_bytes(b"".join([lines[0], long, *lines[2:]]))
    count, table = rerun(capfd)
    assert count == measured_again and table["status"].to_pylist().count("crash") == 1 - measured_again


FORGED = {
    "another device": {"device": "gfx942_mi300x"},
    "another arch": {"arch": "gfx942"},
    "another kind": {"device_kind": "measured"},
    "no time": {"latency_ms": ""},
    "a time of 0": {"latency_ms": "0"},
    "a negative time": {"latency_ms": "-0.001"},
    "an endless time": {"latency_ms": "inf"},
    "a time that is no number": {"latency_ms": "nan"},
    "a time of 1e99": {"latency_ms": "1e99"},
    "no speed": {"tflops": ""},
    "a speed that is no number": {"tflops": "nan"},
    "a negative speed": {"tflops": "-1"},
    "more samples than there can be": {"samples": str(2**63 - 1)},
    "a text for a time": {"latency_ms": "fast"},
    "another status": {"status": "fine"},
    "bytes that are no text": {"error": "\xff\xfe"},
}


@pytest.mark.parametrize("changes", FORGED.values(), ids=FORGED)
def test_a_forged_row_does_not_count(lines, capfd, changes):
    before = pq.read_table("made/dataset.parquet")
    JOURNAL.write_bytes(b"".join([lines[0], forged(lines[1], **changes), *lines[2:]]))
    count, table = rerun(capfd)
    assert count == 1 and table == before


def test_the_memory_does_not_depend_on_the_length_of_a_line(lines):
    os.truncate(JOURNAL, JOURNAL.stat().st_size + 400 * MIB)
    words = stages_by_hand.STAGES.index(STAGES["dataset"])
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_DATA, (700 << 20,) * 2); "
        f"sys.path.insert(0, {str(Path(stages_by_hand.__file__).parent)!r}); import stages_by_hand; "
        f"raise SystemExit(stages_by_hand.STAGES[{words}].run())"
    )
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0
