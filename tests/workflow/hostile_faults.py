"""Hostile entries of the stage store and hostile recordings, for the fault suite.

Nothing may be written outside of the outputs of the stage that reads them, nothing may end in a traceback, no text may
become code of ``selector.hpp``; and once the hostile file is away or made again, the stage makes what it makes
undisturbed.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

from fault_injection import Stage, Suite, contents, run_stage
from small_workflow import ROOT, Workflow, lay_out

sys.path.append(str(ROOT / "tests/builders"))
import hostile_recordings
from cpp_code import code_of
from hostile_values import VALUES, changed, places

OPERATION = "forward_bf16"
RECORDING = Path("config/recorded/sm_90")
HEADER = f"results/serving/sm_90/{OPERATION}/selector.hpp"
NAMES = (
    "../x", "../../x", "a/../../x", "/tmp/tileseer-hostile", "/etc/passwd", ".hidden", "a/.hidden", "a//b", "a/", "./a",
    "a\0b", "\ud800", "x" * 5000, "a/" * 3000 + "b",
)  # fmt: skip
"""Names of files that no stage writes."""
NUMBERS = (-1, -(2**70), 2**31, 2**63, 2**70, 10**400, 1e308, float("inf"), float("-inf"), float("nan"), 0.5, True)
BYTES = (b"", b"[", b"{}", b"null", b"[" * 100_000, b"\xff\xfe", b'{"outputs": {}}', b'{"outputs": {}, "journals": []}')


def plant_entries(suite: Suite, number: int) -> None:
    """Let a stage read one hostile entry of the store, then read what the store holds now."""
    folder = suite.made.folder.parent / "stores"
    stored = [stage for stage in suite.stages if _store_of(suite, stage, folder)]
    store = suite.scratch.folder / "store"
    # Most of them into quick stages: what they make is of no matter to the store.
    weights = [1 / suite.seconds[stage] for stage in stored]
    for draw in suite.cases("hostile entry", number):
        (stage,) = draw.choices(stored, weights)
        suite.clear(stage)
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(folder / stage.name, store)
        entries = [path for path in sorted((store / "entries").rglob("*")) if path.is_file()]
        path = draw.choice([path for path in entries if b'{"outputs"' in path.read_bytes()[:300]] * 3 + entries)
        what = _make_hostile(path, draw)
        before = _outside(suite)
        status, said = run_stage(stage, suite.scratch.folder, store=store)
        fault = f"hostile entry of the stage store: {what}"
        wrong = _wrong(suite, stage, status, said, before)
        if wrong or status:
            suite.count(fault, "lost", f"{stage.name}, {path.read_bytes()[:1000]!r}: {wrong or status}: {said[-1500:]}")
        else:
            suite.clear(stage)
            suite.rerun(stage, fault, stage.name, store=store)


def _store_of(suite: Suite, stage: Stage, folder: Path) -> bool:
    """Make a store that holds what a stage makes undisturbed; return whether the stage keeps anything."""
    store = folder / stage.name
    if not store.exists():
        suite.clear(stage)
        run_stage(stage, suite.scratch.folder, store=store)
        store.mkdir(parents=True, exist_ok=True)
    return any(path.is_file() for path in (store / "entries").rglob("*"))


def _make_hostile(path: Path, draw: random.Random) -> str:
    """Change the content of an entry, mostly so that it fits its first line again; return what was changed."""
    first, _, content = path.read_bytes().partition(b"\n")
    what, content = _hostile_content(content, draw)
    if draw.random() < 0.9:
        words = [*first.split()[:2], str(len(content)).encode(), hashlib.sha256(content).hexdigest().encode()]
        first = b" ".join(words)
    path.write_bytes(first + b"\n" + content)
    return what


def _hostile_content(content: bytes, draw: random.Random) -> tuple[str, bytes]:
    """Return what is hostile and the content with that."""
    try:
        entry = json.loads(content)
        files = [("outputs", name, at) for name, files in entry["outputs"].items() for at in range(len(files))]
    except (ValueError, KeyError, TypeError, AttributeError):
        return "other content", content[: draw.randrange(len(content) + 1)] + draw.choice(BYTES[1:])
    what = draw.choice(
        ("bad name", "bad name", "wrong digest", "wrong type", "wrong type", "number", "no JSON", "less")
    )
    numbers = [("journals", at, 0) for at in range(len(entry["journals"]))] or [("journals",)]
    if what == "bad name":
        entry = changed(entry, (*draw.choice(files), 0), draw.choice(NAMES), rename=False)
    elif what == "wrong digest":
        digest = "".join(draw.choices("0123456789abcdef", k=64))
        wrong = draw.choice((digest, digest[1:], digest.upper() + "0", f"../{digest}", ""))
        entry = changed(entry, (*draw.choice(files), 1), wrong, rename=False)
    elif what == "number":
        new = draw.choice(NUMBERS)
        where = draw.choice(numbers)
        entry = changed(entry, where, new if len(where) > 1 else [[new, "0" * 64]], rename=False)
    elif what == "wrong type":
        # A plain word is a name of a file as any other.
        odd = [value for value in VALUES if not isinstance(value, str)]
        entry = changed(entry, draw.choice(list(places(entry))), draw.choice(odd), rename=False)
    elif what == "less":
        del entry["outputs"][draw.choice(sorted(entry["outputs"]))]
    else:
        text = json.dumps(entry).encode()
        return what, draw.choice((*BYTES, text[: draw.randrange(len(text))], text + b"x"))
    return what, json.dumps(entry).encode()


def prepare_recording(folder: Path, seed: int, log: Path | None) -> Suite:
    """Replay, train on and serve the beginning of a recording undisturbed; return the suite of these stages."""
    made = Workflow(folder / "replayed")
    if not (folder / "replayed copy").exists():
        made = lay_out(folder / "replayed")
        shutil.rmtree(made.folder / RECORDING)
        hostile_recordings.small(ROOT / RECORDING, OPERATION, made.folder / RECORDING, problems=24, kernels=40)
        made.make(HEADER)
        shutil.copytree(made.folder, folder / "replayed copy")
    # A suite that was stopped left a hostile one.
    _replace(made.folder / RECORDING, folder / "replayed copy" / RECORDING)
    return Suite(made, Workflow(folder / "replayed copy"), seed, log, frozenset({"recorded", "model", "serving"}))


def plant_recordings(suite: Suite, number: int) -> None:
    """Let the stages read a hostile recording, then the sound one again; every other one has a hostile text."""
    stages = {stage.name: stage for stage in suite.stages}
    recorded = stages["recorded"]
    sound, folder = (workflow.folder / RECORDING for workflow in (suite.made, suite.scratch))
    texts = sorted(hostile_recordings.texts(sound), key=str)
    for draw in suite.cases("hostile recording", number):
        turn, textual = divmod(int(suite.current.rsplit(" ", 1)[-1]), 2)
        suite.clear(recorded)
        _replace(sound, folder)
        if textual:
            hostile_recordings.inject(folder, texts[turn % len(texts)], draw)
        else:
            hostile_recordings.disturb(folder, OPERATION, draw)
        fault = f"hostile {'text of a' if textual else 'value of a'} recording"
        wrong, refused = "", False
        before = _outside(suite)
        for stage in (recorded, stages["model"], stages["serving"]):
            if stage is not recorded:
                for name in stage.paths(outputs=True):
                    shutil.rmtree(suite.scratch.folder / name)
            status, said = run_stage(stage, suite.scratch.folder)
            refused = bool(status)
            wrong = _wrong(suite, None, status, said, before)
            if wrong or refused or (stage is recorded and suite.same(recorded)):
                break
        header = suite.scratch.folder / HEADER
        wrong = wrong or (_not_plain(header) if header.exists() else "")
        hostile = (folder / hostile_recordings.FILE).read_bytes()[:2000]
        _replace(sound, folder)
        if wrong:
            suite.count(fault, "lost", f"{wrong}: {hostile!r}: {said[-1500:]}")
        else:
            suite.clear(recorded)
            suite.rerun(recorded, fault, "", "refused" if refused else "recovered")


def _replace(source: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)


def _not_plain(header: Path) -> str:
    """Return what is wrong with a header into which a text may have got: an injected word outside of strings."""
    text = header.read_text(encoding="utf-8")
    if re.search("evil|pwned|passwd", code_of(text)[0]):
        return "a text became code"
    if shutil.which("g++") and re.search("evil|pwned|passwd", text):
        command = ["g++", "-std=c++17", "-trigraphs", "-Wno-trigraphs", "-fsyntax-only", "-x", "c++", str(header)]
        compiled = subprocess.run(command, capture_output=True, text=True)
        return compiled.stderr[-500:] if compiled.returncode else ""
    return ""


def _outside(suite: Suite) -> dict[str, object]:
    """Return all that a stage must not write to: the folder without results and store, the one above, some files."""
    above = suite.scratch.folder.parent
    named = (Path("/tmp/tileseer-hostile"), Path("/etc/passwd"), above.parent / "x")
    files = [path for path in suite.scratch.folder.rglob("*") if path.is_file()]
    own = ("results", "store", "locks")
    files = [path for path in files if path.relative_to(suite.scratch.folder).parts[0] not in own]
    stats = {str(path): path.stat() for path in (*files, *named) if path.exists()}
    listed = sorted(path.name for path in (*above.iterdir(), *suite.scratch.folder.iterdir()))
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()} | {"listed": listed}


def _wrong(suite: Suite, stage: Stage | None, status: int, said: str, before: dict[str, object]) -> str:
    """Return what is wrong with how a stage ended, ``stage`` if its outputs have to be the undisturbed ones."""
    if "Traceback" in said or (status and "error: " not in said):
        return f"status {status} without a message"
    after = _outside(suite)
    if after != before:
        return f"written outside: {[name for name in {*after, *before} if after.get(name) != before.get(name)]}"
    results = [path for path in (suite.scratch.folder / "results").rglob("*") if path.name in ("x", "pwned", ".hidden")]
    if results:
        return f"written elsewhere: {results}"
    if stage and not status and not suite.same(stage):
        outputs = {name: str(contents(suite.scratch.folder / name))[:100] for name in stage.paths(outputs=True)}
        return f"other results: {outputs}"
    return ""
