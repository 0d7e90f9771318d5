"""The protocol of docs/internals/reliability.md as a state machine: writers crash in a write, stall, and take over.

Journal, reader and receipt are the real ones. The claim is a model of its contract on a clock of its own; the
real claim is tested in ``test_journal_claim.py``. The numbers of the invariants are those of the page.
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
from tileseer.measure import batch, journal, receipt

PAIRS = range(8)
LEASE_S = 30.0
STEPS = 1_000
WRITERS = st.sampled_from(["one", "other", "third"])
SHARES = st.floats(0, 1)


class Crash(BaseException):
    """The process ends here."""


class Claims:
    """The contract of ``claim.Claim`` for one journal: who holds it, and when it was last renewed."""

    def __init__(self):
        self.now, self.token, self.renewed = 0.0, 0, None

    def taken(self, path, timeout_s):
        if self.renewed is not None and self.now - self.renewed < LEASE_S:
            raise UserError(f"{path} was busy")
        self.token, self.renewed = self.token + 1, self.now
        return Claim(self, self.token)


class Claim:
    def __init__(self, claims, token):
        self.claims, self.token = claims, token

    def holds(self):
        return self.claims.token == self.token and self.claims.renewed is not None

    def check(self):
        if not self.holds():
            raise UserError("another process took over")

    def renew(self):
        if self.holds():
            self.claims.renewed = self.claims.now

    def release(self):
        if self.holds():
            self.claims.renewed = None


class Protocol(RuleBasedStateMachine):
    base: ClassVar[Path]
    steps = 0
    seen: ClassVar[Counter[str]] = Counter()

    @initialize()
    def begin(self):
        self.folder = Path(tempfile.mkdtemp(dir=self.base))
        self.path = self.folder / "0.csv"
        self.claims, self.books, self.stalled = Claims(), {}, set()
        self.durable = self.attempts = self.tears = self.late = 0
        self.before = {}
        self.submitted, self.acknowledged, self.first, self.receipts = {}, {}, {}, []
        fsync = mock.patch.object(os, "fsync", self.synced)
        claim = mock.patch.object(journal, "Claim", self.claims.taken)
        self.patches = [fsync, claim]
        for patch in self.patches:
            patch.start()

    def teardown(self):
        if not hasattr(self, "folder"):
            return
        try:
            self.complete()
        finally:
            for patch in self.patches:
                patch.stop()
            shutil.rmtree(self.folder)

    def synced(self, handle):
        """The journal, or its header before it gets its name, is on the disk."""
        self.durable = os.fstat(handle).st_size

    def read(self):
        return journal.read_journal(self.path)

    def counted(self):
        return receipt.counted(DEVICE.rows(self.read()[0]), wanted(*PAIRS))

    def measured(self, book, throttled):
        """Rows for some pairs that lack one, as the benchmark stage asks: each attempt has another time."""
        found = self.counted()
        lacking = receipt.passing(found).to_pylist()
        have = {name for name, again in zip(found["kernel_id"].to_pylist(), lacking, strict=True) if not again}
        numbers = [n for n in PAIRS if f"{n:016x}" not in have][:3]
        made = []
        for number in numbers:
            self.attempts += 1
            row = measurement(number, latency_ms=1.0 + self.attempts)
            if throttled:
                row |= {"status": "throttled", "latency_ms": None, "tflops": None, "latency_cv": None}
            made.append(row | {"problem_idx": self.attempts})
        self.submitted |= {row["problem_idx"]: row for row in made}
        return rows(*made)

    @rule(who=WRITERS)
    def open(self, who):
        self.step("open")
        if who in self.books:
            return
        try:
            self.books[who] = journal.Journal(self.path)
        except UserError:
            self.seen["busy"] += 1

    @rule(who=WRITERS, throttled=st.booleans())
    def append(self, who, throttled):
        self.step("append")
        self.open(who)
        if who not in self.books:
            return
        made, before = self.measured(self.books[who], throttled), self.content()
        held = self.books[who]._claim.holds()
        try:
            self.books[who].append(made)
        except UserError:
            # 5: who lost the claim writes nothing.
            assert not held and self.content() == before
            self.seen["stale"] += 1
            self.die(who)
            return
        assert held
        self.acknowledged |= {row["problem_idx"]: row for row in made.to_pylist()}

    @rule(who=WRITERS, throttled=st.booleans(), share=SHARES)
    def crash_in_a_write(self, who, throttled, share):
        self.step("crash")
        self.open(who)
        if who not in self.books or not self.books[who]._claim.holds():
            return
        write = os.write

        def torn(handle, content):
            write(handle, bytes(content)[: int(share * len(content))])
            raise Crash

        with mock.patch.object(os, "write", torn):
            try:
                self.books[who].append(self.measured(self.books[who], throttled))
            except Crash:
                self.tears += 1
        self.die(who)

    @rule(who=WRITERS, heir=WRITERS, share=SHARES)
    def write_late(self, who, heir, share):
        """It looked, it held the claim, and it stalled before or within its write, while the next one took over."""
        self.step("late")
        self.stall_and_be_taken_over(who, heir)
        others = [name for name in self.books if name != who and self.books[name]._claim.holds()]
        if who not in self.books or not others or self.books[who]._claim.holds():
            return
        made = self.measured(self.books[who], False)
        text = self.text(made)
        os.write(self.books[who]._file, text[: int(share * len(text))])
        self.append(others[0], False)
        os.write(self.books[who]._file, text[int(share * len(text)) :])
        self.late += made.num_rows
        self.seen["late write"] += 1
        self.tears += 2
        self.die(who)

    @rule(who=WRITERS, heir=WRITERS)
    def stall_and_be_taken_over(self, who, heir):
        """Nothing is heard of a writer for longer than the lease: it is taken for dead, and lives."""
        self.step("stall")
        self.open(who)
        if who in self.books and heir != who:
            self.stalled.add(who)
            self.time_passes(LEASE_S + 1)
            self.open(heir)

    @rule(who=WRITERS)
    def wake(self, who):
        """Who stalled goes on with what it was about to do."""
        self.step("wake")
        if who in self.stalled:
            self.stalled.discard(who)
            self.append(who, False)

    @rule(seconds=st.sampled_from([1.0, LEASE_S / 3, LEASE_S + 1, 1e6]))
    def time_passes(self, seconds):
        """Who does not stall renews its claim in time, however long that is on its own clock."""
        self.step("time")
        self.claims.now += seconds
        for who, book in self.books.items():
            if who not in self.stalled:
                book._claim.renew()

    @rule(years=st.integers(-10, 10))
    def the_wall_clock_jumps(self, years):
        self.step("clock")
        if self.path.exists():
            os.utime(self.path, (1.6e9 + years * 3.2e7,) * 2)

    @rule(share=SHARES, zeros=st.booleans())
    def power_fails(self, share, zeros):
        """All processes end; of what was not synced some is lost, or zeros."""
        self.step("power")
        content = self.content()
        for who in list(self.books):
            self.die(who)
        kept = self.durable + int(share * max(0, len(content) - self.durable))
        if kept < len(content):
            self.path.write_bytes(content[:kept] + (b"\0" * (len(content) - kept) if zeros else b""))
            self.before = {}
            self.seen["lost"] += 1
            self.tears += 1

    @rule(who=WRITERS)
    def close(self, who):
        """A job ends in order, or is killed before one of the steps that replace its lines by columns."""
        self.step("close")
        if who not in self.books:
            return
        if self.books[who]._claim.holds():
            killed = ("", "rename", "replace", "unlink")[self.seen["end"] % 4]
            self.seen["end"] += 1
            with mock.patch.object(os, killed, side_effect=Crash) if killed else nullcontext():
                try:
                    self.books[who].compress()
                    self.seen["compressed"] += 1
                except Crash:
                    self.seen["killed"] += 1
                    self.die(who)
                    return
        self.books.pop(who).close()

    @rule(who=WRITERS)
    def write_a_receipt(self, who):
        """As the benchmark stage does once it has the journal, of pairs that need no second try."""
        self.step("receipt")
        self.close(who)
        self.open(who)
        if who not in self.books:
            return
        found = self.counted()
        final = found.filter(pc.invert(receipt.passing(found)))
        if final.num_rows:
            self.receipts.append((final["kernel_id"].to_pylist(), receipt.digest_rows(final)))

    @rule()
    def read_from_another_chunk(self):
        """6: another chunk is given what the whole journal gives."""
        self.step("neighbour")
        found = batch.rows_of_neighbours(self.folder / "1.csv", wanted(*PAIRS), DEVICE)
        assert found.to_pylist() == self.counted().to_pylist()

    def step(self, name):
        Protocol.steps += 1
        Protocol.seen[name] += 1

    def content(self):
        return self.path.read_bytes() if self.path.exists() else b""

    def text(self, made):
        """What an append of these rows would write."""
        aside = self.folder / "aside" / "0.csv"
        claim = mock.patch.object(journal, "Claim", Claims().taken)
        with claim, mock.patch.object(os, "fsync", lambda handle: None), journal.Journal(aside) as book:
            book.append(made)
        text = aside.read_bytes().partition(b"\n")[2]
        shutil.rmtree(aside.parent)
        return text

    def die(self, who):
        """The process ends: the system closes its files, and its claim stays until it is old."""
        os.close(self.books.pop(who)._file)
        self.stalled.discard(who)

    @invariant()
    def holds(self):
        if not hasattr(self, "folder"):
            return
        found, malformed = self.read()
        have = {row["problem_idx"]: row for row in found.to_pylist()}
        # 1: a journal only grows, and has each row once.
        assert self.before.items() <= have.items() and len(have) == found.num_rows
        self.before = have
        # 2: what was acknowledged stays, as it was. 3: nothing is read that was not measured.
        assert self.acknowledged.items() <= have.items()
        assert all(rows(self.submitted[number]).to_pylist() == [row] for number, row in have.items())
        # 4: a pair counts once, by a row that never changes but for a second try after passing trouble.
        counted = {row["kernel_id"]: row for row in self.counted().to_pylist()}
        for pair, row in self.first.items():
            assert counted[pair] == row or row["status"] in receipt.PASSING
        # A row that is whole but not yet synced may still be lost with the power.
        safe = {number for number in have if number in self.acknowledged}
        self.first = {pair: row for pair, row in counted.items() if row["problem_idx"] in safe}
        # 7: what is in vain is bounded.
        assert len(malformed) <= self.tears
        final = Counter(row["kernel_id"] for row in have.values() if row["status"] == "ok")
        assert sum(count - 1 for count in final.values()) <= self.late

    @invariant()
    def receipts_hold(self):
        # 8: later rows change nothing that a receipt vouches for.
        for pairs, digest in getattr(self, "receipts", ()):
            found = self.counted()
            assert (
                receipt.digest_rows(found.filter(pc.is_in(found["kernel_id"], pa.array(pairs, pa.string())))) == digest
            )

    def complete(self):
        """9: whatever happened, the next run goes on by itself and completes the journal."""
        self.claims.now += LEASE_S
        for who in list(self.books):
            self.die(who)
        with journal.Journal(self.path) as book:
            while (made := self.measured(book, False)).num_rows:
                book.append(made)
        assert self.counted()["kernel_id"].to_pylist() == [f"{n:016x}" for n in PAIRS]
        assert not any(receipt.passing(self.counted()).to_pylist())


def test_the_invariants_hold_whoever_dies_when(tmp_path):
    Protocol.base = tmp_path
    quiet = list(HealthCheck)
    happened = ("busy", "stale", "crash", "late write", "lost", "compressed", "killed")
    # Hypothesis draws other steps when other modules are loaded, so a rare one may need a second round.
    for count in (50, 60, 70, 80):
        settled = settings(max_examples=30, stateful_step_count=count, deadline=None, derandomize=True)
        quick = settings(settled, suppress_health_check=quiet, phases=[Phase.generate])
        run_state_machine_as_test(Protocol, settings=quick)
        if all(Protocol.seen[name] for name in happened):
            break
    assert Protocol.steps >= STEPS
    # What the machine is for did happen.
    assert all(Protocol.seen[name] for name in happened), Protocol.seen
