"""The protocol of docs/internals/reliability.md as a state machine: writers crash in a write, and the power fails.

Journal, lock, reader and receipt are the real ones. The numbers of the invariants are those of the page.
"""

import os
import shutil
import tempfile
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import ClassVar
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from test_journal import DEVICE, measurement, rows, wanted

from tileseer.core.errors import UserError
from tileseer.measure import benchmark, journal, receipt

PAIRS = range(8)
WRITERS = st.sampled_from(["one", "other"])
SHARES = st.floats(0, 1)


class Crash(BaseException):
    """The process ends here."""


class Protocol(RuleBasedStateMachine):
    base: ClassVar[Path]
    seen: ClassVar[Counter[str]] = Counter()

    @initialize()
    def begin(self):
        self.folder = Path(tempfile.mkdtemp(dir=self.base))
        self.path = self.folder / "0.csv"
        self.books = {}
        self.durable = self.attempts = self.tears = 0
        self.before = {}
        self.submitted, self.acknowledged, self.first, self.receipts = {}, {}, {}, []
        self.patch = mock.patch.object(os, "fsync", self.synced)
        self.patch.start()

    def teardown(self):
        if not hasattr(self, "folder"):
            return
        try:
            self.complete()
        finally:
            self.patch.stop()
            shutil.rmtree(self.folder)

    def synced(self, handle):
        """The journal, or its header before it gets its name, is on the disk."""
        self.durable = os.fstat(handle).st_size

    def counted(self, found=None):
        """The rows that count, of those that were read, or are read now."""
        found = journal.read_journal(self.path)[0] if found is None else found
        return receipt.counted(DEVICE.rows(found), wanted(*PAIRS))

    def measured(self, throttled):
        """Rows for some pairs that lack one, as the benchmark stage asks: each attempt has another time."""
        found = self.counted()
        lacking = receipt.passing(found).to_pylist()
        have = {name for name, again in zip(found["kernel_id"].to_pylist(), lacking, strict=True) if not again}
        made = []
        for number in [n for n in PAIRS if f"{n:016x}" not in have][:3]:
            self.attempts += 1
            row = measurement(number, latency_ms=1.0 + self.attempts)
            if throttled:
                row |= {"status": "throttled", "latency_ms": None, "tflops": None, "latency_cv": None}
            made.append(row | {"problem_idx": self.attempts})
        self.submitted |= {row["problem_idx"]: row for row in made}
        return rows(*made)

    def open(self, who):
        """The journal, open for one writer; None while another one has it."""
        if who not in self.books:
            try:
                self.books[who] = journal.Journal(self.path)
            except UserError:
                assert self.books
                self.seen["busy"] += 1
        return self.books.get(who)

    @rule(who=WRITERS, throttled=st.booleans())
    def append(self, who, throttled):
        if book := self.open(who):
            made = self.measured(throttled)
            book.append(made)
            self.acknowledged |= {row["problem_idx"]: row for row in made.to_pylist()}

    @rule(who=WRITERS, throttled=st.booleans(), share=SHARES)
    def crash_in_a_write(self, who, throttled, share):
        write = os.write

        def torn(handle, content):
            write(handle, bytes(content)[: int(share * len(content))])
            raise Crash

        if book := self.open(who):
            made = self.measured(throttled)
            with mock.patch.object(os, "write", torn):
                try:
                    book.append(made)
                except Crash:
                    self.tears += 1
                    self.seen["crash"] += 1
            self.books.pop(who).close()

    @rule(share=SHARES, zeros=st.booleans())
    def power_fails(self, share, zeros):
        """All processes end; of what was not synced some is lost, or zeros."""
        content = self.path.read_bytes() if self.path.exists() else b""
        for who in list(self.books):
            self.books.pop(who).close()
        kept = self.durable + int(share * max(0, len(content) - self.durable))
        if kept < len(content):
            self.path.write_bytes(content[:kept] + (b"\0" * (len(content) - kept) if zeros else b""))
            self.before = {}
            self.seen["lost"] += 1
            self.tears += 1

    @rule(who=WRITERS)
    def close(self, who):
        """A job ends in order, or is killed before one of the steps that replace its lines by columns."""
        if who not in self.books:
            return
        killed = ("", "rename", "replace", "unlink")[self.seen["end"] % 4]
        self.seen["end"] += 1
        with mock.patch.object(os, killed, side_effect=Crash) if killed else nullcontext():
            try:
                self.books[who].compress()
                self.seen["compressed"] += 1
            except Crash:
                self.seen["killed"] += 1
        self.books.pop(who).close()

    @rule(who=WRITERS)
    def write_a_receipt(self, who):
        """As the benchmark stage does once it has the journal, of pairs that need no second try."""
        self.close(who)
        if self.open(who):
            found = self.counted()
            final = found.filter(pc.invert(receipt.passing(found)))
            if final.num_rows:
                self.receipts.append((final["kernel_id"].to_pylist(), receipt.digest_rows(final)))

    @rule()
    def read_from_another_chunk(self):
        """5: another chunk is given what the whole journal gives."""
        found = benchmark.rows_of_neighbours(self.folder / "1.csv", wanted(*PAIRS), DEVICE)
        assert found.to_pylist() == self.counted().to_pylist()

    @invariant()
    def holds(self):
        if not hasattr(self, "folder"):
            return
        found, malformed = journal.read_journal(self.path)
        have = {row["problem_idx"]: row for row in found.to_pylist()}
        # 1: a journal only grows, and has each row once.
        assert self.before.items() <= have.items() and len(have) == found.num_rows
        self.before = have
        # 2: what was acknowledged stays, as it was. 3: nothing is read that was not measured.
        assert self.acknowledged.items() <= have.items()
        submitted = rows(*(self.submitted[number] for number in have)).to_pylist()
        assert submitted == list(have.values())
        # 4: a pair counts once, by a row that never changes but for a second try after passing trouble.
        table = self.counted(found)
        counted = {row["kernel_id"]: row for row in table.to_pylist()}
        for pair, row in self.first.items():
            assert counted[pair] == row or row["status"] in receipt.PASSING
        # A row that is whole but not yet synced may still be lost with the power.
        self.first = {pair: row for pair, row in counted.items() if row["problem_idx"] in self.acknowledged}
        # 6: what is in vain is bounded.
        assert len(malformed) <= self.tears
        final = Counter(row["kernel_id"] for row in have.values() if row["status"] == "ok")
        assert all(count == 1 for count in final.values())
        # 7: later rows change nothing that a receipt vouches for.
        for pairs, digest in self.receipts:
            of_receipt = table.filter(pc.is_in(table["kernel_id"], pa.array(pairs, pa.string())))
            assert receipt.digest_rows(of_receipt) == digest

    def complete(self):
        """8: whatever happened, the next run goes on by itself and completes the journal."""
        for who in list(self.books):
            self.books.pop(who).close()
        with journal.Journal(self.path) as book:
            while (made := self.measured(False)).num_rows:
                book.append(made)
        assert self.counted()["kernel_id"].to_pylist() == [f"{n:016x}" for n in PAIRS]
        assert not any(receipt.passing(self.counted()).to_pylist())


def test_the_invariants_hold_whoever_dies_when(tmp_path):
    Protocol.base = tmp_path
    rare = {"busy", "crash", "lost", "compressed", "killed"}
    # Hypothesis draws other steps when other modules are loaded, so a rare one may need another round.
    for count in (50, 60, 70, 80):
        settled = settings(max_examples=10, stateful_step_count=count, deadline=None, derandomize=True)
        quick = settings(settled, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
        run_state_machine_as_test(Protocol, settings=quick)
        if rare <= {*Protocol.seen}:
            break
    # What the machine is for did happen.
    assert rare <= {*Protocol.seen}, Protocol.seen
