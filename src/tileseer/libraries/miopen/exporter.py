"""``tileseer export miopen``: a user find-db of MIOpen with the predictions of a model.

MIOpen takes its entries without timing anything, so a record is for the version whose times a model learnt: for another
one, only what was timed with that one is written. A wrong entry is an error in the user's program, or a buffer that is
too small. So only those solvers are written whose workspace is sure (``libraries.miopen.workspace``, or a line of
MIOpen itself for the same key) and small enough, with the algorithm that MIOpen writes for the solver in this
direction. A record also stops MIOpen from searching, so a problem gets one only where problems like it were measured
(``learn.evidence``). Records of the file that the user has are measured: they stay as they are.
"""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import pandas as pd

from tileseer.cli import options
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError
from tileseer.core.progress import Progress
from tileseer.core.reading import no_file
from tileseer.data.provenance import Taken
from tileseer.facts.hardware import Hardware, target
from tileseer.judge.layers import read_layers
from tileseer.learn import evidence, model_files
from tileseer.learn.evidence import NEAR_PROBLEMS
from tileseer.learn.model import Model
from tileseer.libraries.miopen.find_db import (
    DIRECTION_OF_LETTER,
    Entry,
    FileGpu,
    FileName,
    Key,
    Measured,
    read_lines,
    timed_files,
)
from tileseer.libraries.miopen.kernel import Solver
from tileseer.libraries.miopen.library import MIOPEN
from tileseer.libraries.miopen.solvers import algorithm_word, in_words, is_gone, release_of
from tileseer.libraries.miopen.workspace import holds, workspace
from tileseer.libraries.problem_lists import read_problem_lists
from tileseer.libraries.registry import library_of_arch
from tileseer.problems.kinds import layer_kinds
from tileseer.problems.operation import Operation
from tileseer.problems.problem import LAYOUTS, Problem, problem_frame
from tileseer.serve.selector import Selector
from tileseer.serve.tuned import tuned_path

LETTER_OF_DIRECTION = {variant: letter for letter, variant in DIRECTION_OF_LETTER.items()}
OLDEST_RELEASE = 3, 0
"""Release of MIOpen whose solvers and form of records are those written here."""
DIGITS_OF_A_TIME = 6
"""Of a time, as MIOpen writes it."""
LEAST_RATIO_OF_TIMES = 1.00001
"""Least ratio of one time to the one before it: with so many digits they differ."""
FALLBACK_SOLVERS = "ConvDirectNaiveConv"
"""Slow solvers that run everything. They are written only in first place, and only where they were the fastest of all
measured problems nearby: a record stops MIOpen from searching, without one it finds something better."""
OUTSIDE = "outside of what was measured (docs/internals/learning.md, Evidence): without a record MIOpen decides"
MOST_BELOW_HALF = 0.02
"""Share of picks with less than half of the speed, among left-out layers of a kind, up to which it gets records."""
OFTEN_SLOW = "more than 2 % of the picks for layers like it have less than half of the speed: MIOpen decides"
SLOW_FIRST = "the naive solver comes first, which was not the fastest of the measured problems nearby"
NO_ENTRY = "no solver that is about as fast as the pick has an algorithm and a workspace that are sure and small enough"
NOT_TUNED = "not timed with MIOpen {} on this GPU (tileseer tune --driver MIOpenDriver)"
OTHER_VERSION = (
    "the times of these models are of {measured}, but --user is of MIOpen {installed}: only what was timed with it "
    "(tileseer tune --driver MIOpenDriver) is written; tileseer run --arch installed_miopen makes models of it"
)
PROBLEMS_AT_A_TIME = 4096
"""That are ranked together."""
SLOWEST_FIRST = 105.0
"""Predicted time of the first solver of a record, in percent of the pick's, which may be one that cannot be written."""


MOST_WORKSPACE = 4 << 30
"""Bytes."""


@dataclass(frozen=True)
class Settings:
    """How a model is exported."""

    user: Path
    """A user find-db of the build and GPU that the export is for; its records stay."""
    build: str = ""
    """Of MIOpen, such as 3_2_0_36bb7fd4a, if it is to be checked."""
    system: Sequence[Path] = ()
    """Databases of the installation, whose records are measured."""
    measured: bool = False
    """Also write the keys that ``system`` or the model's own recording has measured."""
    layout: str = ""
    """Only problems of this one of ``LAYOUTS``."""
    workspace: int = MOST_WORKSPACE
    """Most bytes of workspace of a solver."""
    tuned: bool = False
    """Only the solvers that ``tileseer tune`` timed on this GPU, with their times."""
    top: int = 4
    """Most solvers of a key."""


@dataclass
class Export:
    """The lines of the file, and why problems have none."""

    lines: list[str] = field(default_factory=list)
    kept: int = 0
    """The first lines: those of the file that was there."""
    entries: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    taken: dict[str, Taken | None] = field(default_factory=dict)
    """With what the times of each operation were taken."""
    notes: dict[str, None] = field(default_factory=dict)
    """What the user has to know of them."""


def check_files(settings: Settings, arch: str, hardware: Hardware) -> None:
    """Raise a ``UserError`` unless the files are of the model's GPU, and ``user`` of the build."""
    name = FileName.parse(settings.user)
    gpu, own = target(arch), name.gpu
    if own.arch != gpu:
        raise UserError(
            f"--user {settings.user}: is of {own.arch}, but the model is of {gpu}; give models of {own.arch}"
        )
    if own.compute_units != hardware.compute_units:
        raise UserError(
            f"--user {settings.user}: is of a GPU with {own.compute_units} compute units, but the model is of "
            f"{hardware.name} with {hardware.compute_units}: give a model of your GPU's times (tileseer import find-db)"
        )
    if name.release < OLDEST_RELEASE:
        raise UserError(
            f"--user {settings.user}: is of MIOpen {name.build}; records are written for {in_words(OLDEST_RELEASE)} or "
            "newer"
        )
    if settings.build and settings.build.replace(".", "_") != name.build:
        raise UserError(f"--user {settings.user}: is of build {name.build} of MIOpen, not of {settings.build}")
    for path in settings.system:
        # Without a file of its own number of units, MIOpen takes that of another one of the same arch.
        if not (system := FileGpu.of(path.name)):
            raise UserError(f"--system {path}: its name is of no find-db, such as {gpu}130.HIP.fdb.txt")
        if system.arch != own.arch:
            raise UserError(f"--system {path}: is of {system.arch}, but --user of {own.arch}")


def export_models(models: Path, problems: Sequence[Problem], settings: Settings) -> Export:
    """Return the lines of a user find-db for ``problems``, behind the lines of the file that is there.

    A problem without a layout is written in every layout that the model of its operation knows. ``UserError``: models
    of another library, or a file of another GPU or build.
    """
    index = model_files.read_index(models)
    if library_of_arch(index.arch) is not MIOPEN:
        raise UserError(
            f"{models}: its models are of {index.arch}, not of MIOpen's solvers; tileseer run --arch gfx942_miopen, or "
            "installed_miopen, makes such"
        )
    first = models / next(iter(index.operations.values())).folder
    check_files(settings, index.arch, Model.read(first).hardware)
    files = Files.read(settings, tuned_path(models, next(iter(index.operations))).parent)
    lines = [line for line in read_lines(settings.user) if line.strip()]
    export = Export(lines, len(lines))
    of_operation: dict[Operation, list[Problem]] = {}
    for problem in problems:
        of_operation.setdefault(Operation(problem.variant, problem.dtype), []).append(problem)
    for operation, listed in of_operation.items():
        if str(operation) not in index.operations:
            export.left_out[f"no model of {operation}"] += len(listed)
            continue
        selector = Selector.read(models, str(operation))
        export.taken[str(operation)] = selector.spec.taken
        Writer(selector, files, settings).write(listed, export)
    return export


class Files(NamedTuple):
    """What MIOpen itself wrote."""

    own: Measured
    """Of ``Settings.user``."""
    system: Measured
    timed: Measured
    """Of what ``tileseer tune`` timed with the version of ``user``."""

    @classmethod
    def read(cls, settings: Settings, tuned: Path) -> Self:
        """Read them; ``tuned`` is the folder of tuned choices."""
        own, system = Measured.read([settings.user], newest_form=True), Measured.read(settings.system)
        return cls(own, system, Measured.read(timed_files(tuned, settings.user)))


class Writer:
    """Writes the problems of one operation."""

    def __init__(self, selector: Selector, files: Files, settings: Settings) -> None:
        self._selector, self._settings = selector, settings
        self._own, self._system, self._timed = files
        self._letter = LETTER_OF_DIRECTION[Operation.parse(selector.spec.operation).variant]
        self._flops_per_ms = selector.known["tflops"].to_numpy() * 1e9
        self._fastest = selector.known["row"].to_numpy()
        self._solvers = [str(Solver.parse(kernel).solver) for kernel in selector.kernels]
        self._release = FileName.parse(settings.user).release
        taken = selector.spec.taken
        self._measured_with = (taken and taken.library) or "a MIOpen whose version is not known"
        measured = release_of(self._measured_with)
        self._is_measured = bool(measured) and measured == self._release[: len(measured)]
        self._only_tuned = settings.tuned or not self._is_measured
        # Names that the installation's files never have are not those of its solvers.
        self._named = self._own.solvers | self._system.solvers if settings.system else None

    def write(self, problems: Sequence[Problem], export: Export) -> None:
        """Add the lines of problems."""
        if not self._is_measured and not self._settings.tuned:
            note = OTHER_VERSION.format(measured=self._measured_with, installed=in_words(self._release))
            export.notes[note] = None
        listed = self._to_rank(problems, export)
        if self._only_tuned:
            self._write_tuned(listed, export)
            return
        with Progress(self._selector.spec.operation, len(listed), "problems") as progress:
            for start in range(0, len(listed), PROBLEMS_AT_A_TIME):
                part = dict(islice(listed.items(), start, start + PROBLEMS_AT_A_TIME))
                self._write_ranked(part, export)
                progress.add(len(part))

    def _write_ranked(self, listed: Mapping[str, Problem], export: Export) -> None:
        """Add the lines of problems, by their keys, that are ranked together."""
        problems = [*listed.values()]
        expected = self._selector.expected(problems)
        first = problems[0].with_layout(LAYOUTS[0])  # a kind of NHWC is one beside NCHW
        kinds = layer_kinds(problem_frame([*problems, first]))[:-1]
        # By the layers of their kind, each counted once, and by all sizes that were judged.
        slow = (expected.below_half > MOST_BELOW_HALF) | np.isin(kinds, [*self.slow_kinds])
        outside = expected.classes == evidence.OUTSIDE
        known = dict[str, Problem]()
        for (key, problem), is_outside, is_slow in zip(listed.items(), outside, slow, strict=True):
            # What was measured exactly begins with what was the fastest.
            reason = OUTSIDE if is_outside else OFTEN_SLOW if is_slow and not self._measured(problem) else ""
            export.left_out.update([reason] * bool(reason))
            known |= {} if reason else {key: problem}
        if not known:
            return
        asked = [*known.values()]
        nearest, _ = self._selector.evidence.nearest(self._selector.evidence_columns(asked), NEAR_PROBLEMS)
        for (key, problem), scores, near in zip(known.items(), self._selector.scores(asked), nearest, strict=True):
            ranked = self._ranked(problem, scores)
            # The naive solver goes first only if it was the fastest on all of the known problems that are nearest.
            was_fastest = ((near >= 0) & (self._fastest[near] == ranked[0][0])).all() if ranked else True
            if ranked and self._is_fallback(ranked[0][0]) and not was_fastest:
                export.left_out[SLOW_FIRST] += 1
            else:
                self._add(key, self._entries(key, problem, ranked, near[near >= 0]), export)

    @cached_property
    def slow_kinds(self) -> set[str]:
        """Kinds of layers that get no records."""
        return kinds_often_slow(read_layers(self._selector.folder / model_files.LAYERS))

    def _write_tuned(self, problems: Mapping[str, Problem], export: Export) -> None:
        """Add a line of the tuned choice of each problem that was timed with the version of ``user``."""
        reason = NOT_TUNED.format(in_words(self._release))
        for key, problem in problems.items():
            choice = self._selector.tuned(problem)
            entry = None
            if choice is not None and choice.device_kind == "measured":
                entry = self._timed.entry(key, Solver.parse(choice.candidate).solver)
            if choice is None or entry is None:
                export.left_out[reason] += 1
                continue
            fits = int(entry.workspace) <= self._settings.workspace
            self._add(key, [entry._replace(time=_digits(choice.time_ms))] if fits else [], export)

    def _add(self, key: str, entries: Sequence[Entry], export: Export) -> None:
        if not entries:
            export.left_out[NO_ENTRY] += 1
            return
        export.lines.append(f"{key}={';'.join(map(str, entries))}")
        export.entries += len(entries)

    def _to_rank(self, problems: Sequence[Problem], export: Export) -> dict[str, Problem]:
        """Return the distinct problems of one layout each that get a line, by their keys."""
        kept: dict[str, Problem] = {}
        for problem in problems:
            layouts = [problem.layout] if problem.layout else list(LAYOUTS)
            for layout in layouts:
                one, reason = problem.with_layout(layout), ""
                key = str(Key.of(one))
                if key in kept or self._settings.layout not in ("", layout):
                    continue
                if not self._selector.knows(one.ndim, layout):
                    # Without a layout of its own, a problem is for the layouts that the model knows.
                    reason = f"the model of {self._selector.spec.operation} does not know the layout {layout}"
                    export.left_out.update([reason] * bool(problem.layout))
                elif key in self._own.records:
                    export.left_out["measured in the file of --user, which keeps its record"] += 1
                elif self._only_tuned:
                    kept[key] = one
                elif not self._settings.measured and key in self._system.records:
                    export.left_out["measured in the system's database"] += 1
                elif not self._settings.measured and self._measured(one):
                    export.left_out["measured in the recording of the model"] += 1
                else:
                    kept[key] = one
        return kept

    def _entries(
        self, key: str, problem: Problem, ranked: Sequence[tuple[int, float]], near: np.ndarray
    ) -> list[Entry]:
        """Return the entries of a problem, fastest first; ``near``: the known problems that are nearest to it.

        The fastest is promised their median speed.
        """
        fastest = problem.flop / np.median(self._flops_per_ms[near])
        entries, before = list[Entry](), 0.0
        for place, (row, share) in enumerate(ranked):
            if len(entries) == self._settings.top or (place and self._is_fallback(row)):
                continue
            time = max(fastest * share / 100, before * LEAST_RATIO_OF_TIMES)
            if (entry := self.entry(key, problem, self._solvers[row], time)) is None:
                continue
            if not entries and share > SLOWEST_FIRST:
                break
            entries.append(entry)
            before = time
        return entries

    def entry(self, key: str, problem: Problem, solver: str, milliseconds: float) -> Entry | None:
        """Return the entry of a solver; None without an algorithm and a workspace that are sure and small enough.

        The workspace is the larger one of the formula's and of what MIOpen wrote for the same key.
        """
        if is_gone(solver, self._release) or (self._named is not None and solver not in self._named):
            return None
        known = solver, self._letter
        algorithm = self._own.algorithms.get(known) or self._system.algorithms.get(known) or algorithm_word(*known)
        formula = workspace(solver, problem)
        if formula is not None and not (holds(self._release) or self._system.confirms(solver, problem)):
            formula = None
        sizes = [size for size in (formula, self._system.workspace(key, solver)) if size is not None]
        if algorithm is None or not sizes or max(sizes) > self._settings.workspace:
            return None
        return Entry(solver, _digits(milliseconds), str(max(sizes)), algorithm)

    def _ranked(self, problem: Problem, scores: np.ndarray) -> list[tuple[int, float]]:
        """Return the candidates by their scores, best first, with their times in percent of the first one's.

        The candidate that was the fastest when exactly this problem was measured goes before them.
        """
        order = np.argsort(-scores, kind="stable")
        order = order[np.isfinite(scores[order])]
        ranked = list(zip(order.tolist(), self._selector.predicted_times(scores[order]).tolist(), strict=True))
        if measured := self._measured(problem):
            first = self._selector.candidates.index(measured)
            ranked = [(row, 100.0 if row == first else time) for row, time in ranked]
            ranked.sort(key=lambda one: one[0] != first)
        return ranked

    def _measured(self, problem: Problem) -> str | None:
        return self._selector.fastest_measured(problem)

    def _is_fallback(self, row: int) -> bool:
        return self._solvers[row].startswith(FALLBACK_SOLVERS)


def kinds_often_slow(judged: pd.DataFrame) -> set[str]:
    """Return the kinds of judged layers with too many slow picks, of those not outside of what was measured."""
    judged = judged[judged["evidence"] != evidence.EVIDENCE_CLASSES[evidence.OUTSIDE]]
    shares = (judged["efficiency"] < 1 / evidence.HALF).groupby(judged["kind"]).mean()
    return set(shares.index[shares > MOST_BELOW_HALF])


def _digits(milliseconds: float) -> str:
    return f"{milliseconds:.{DIGITS_OF_A_TIME}g}"


SUMMARY = "a user find-db, which MIOpen reads: for PyTorch on ROCm without code"
EXAMPLES = (
    "tileseer export miopen results/models/gfx90a_miopen --problems training.log \\\n"
    "      --user gfx90a68.HIP.3_3_0_36bb7fd4a.ufdb.txt --system gfx90a68.HIP.fdb.txt --output miopen-db",
)


def configure(own: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.add_models(own)
    meaning = f"{options.problem_files()}; a program logs them with MIOPEN_ENABLE_LOGGING_CMD=1"
    own.add_argument("--problems", nargs="+", required=True, type=Path, metavar="FILE", help=meaning)
    meaning = "user find-db that your MIOpen wrote below ~/.config/miopen: the output has its name and its records"
    own.add_argument("--user", required=True, type=Path, metavar="UFDB", help=meaning)
    own.add_argument("--output", required=True, type=options.folder_output, metavar="DIR", help="folder for the file")
    meaning = "find-db of the installation (share/miopen/db): what it has measured is left out"
    own.add_argument("--system", nargs="+", default=[], type=Path, metavar="FDB", help=meaning)
    meaning = "also write what the installation's database or the model's recording has measured"
    own.add_argument("--measured", action="store_true", help=meaning)
    meaning = "only what tileseer tune --driver timed on this GPU, with the measured times"
    own.add_argument("--tuned", action="store_true", help=meaning)
    options.add_layout(own)
    own.add_argument("--top", type=options.positive, default=4, help="most solvers of a problem (default: 4)")
    meaning = "most workspace of a solver: bytes, KiB, MiB, GiB or 0 (default: 4GiB)"
    own.add_argument("--workspace", type=options.size, default=MOST_WORKSPACE, metavar="SIZE", help=meaning)
    own.add_argument("--build", default="", metavar="VERSION", help="refuse a --user of another build of MIOpen")
    own.epilog = "MIOpen takes the first solver of a record that it can run. See docs/amd.md on what to set."


def run(args: argparse.Namespace) -> int:
    """Write the file and print how MIOpen finds it; return 1 if the models add nothing to it."""
    FileName.parse(args.user)  # another name is refused even where there is no such file
    if not args.user.is_file():
        raise UserError(
            f"--user {args.user}: there is no such file; run one convolution, and your MIOpen writes it below "
            "~/.config/miopen"
        )
    if missing := next((path for path in args.system if not path.exists()), None):
        raise UserError(f"--system {missing}: {no_file(missing)}; ROCm has it in share/miopen/db, packed (.bz2) or not")
    index = model_files.read_index(args.models)
    # MIOpenDriver takes tensors whose layout a line leaves open as NCHW.
    listed = read_problem_lists(args.problems, [Operation.parse(name) for name in index.operations], LAYOUTS[0])
    layout = (args.layout or "").replace("D", "")
    settings = Settings(args.user, args.build, args.system, args.measured, layout, args.workspace, args.tuned, args.top)
    export = export_models(args.models, list(listed.problems), settings)
    path = args.output / args.user.name
    if path.exists() and path.samefile(args.user):
        raise UserError(f"--output {args.output}: is the folder of --user, which stays as it is; name another one")
    if path.exists():
        raise UserError(f"{path}: exists already; name another folder, or remove it first")
    if len(export.lines) > export.kept:
        write_text(path, "".join(f"{line}\n" for line in export.lines))
    notes = [*export.notes, *listed.notes]
    if not args.system and len(export.lines) > export.kept:
        notes.append("without --system, predictions also replace what only the installation has measured")
    content = {
        "file": path,
        "arch": index.arch,
        "taken": export.taken,
        "problems": len(listed.problems),
        "kept": export.kept,
        "written": len(export.lines) - export.kept,
        "entries": export.entries,
        "left_out": dict(export.left_out.most_common()),
        "refused": dict(listed.refused.most_common()),
        "notes": notes,
    }
    behind = f"{content['written']:,} records with {export.entries:,} solvers, behind {export.kept:,} of --user"
    use = f"to use it: export MIOPEN_USER_DB_PATH={args.output.absolute()}; to undo it: unset MIOPEN_USER_DB_PATH"
    lines = [
        f"{path}: {behind if content['written'] else 'not written, since no problem got a record'}",
        *dict.fromkeys(line for taken in export.taken.values() for line in options.taken_lines(taken)),
        *(f"left out {count:,}: {reason}" for reason, count in export.left_out.most_common()),
        *(f"refused {count:,} lines: {reason}" for reason, count in listed.refused.most_common()),
        *(f"note: {note}" for note in notes),
        *([use] if content["written"] else []),
    ]
    return options.answer(args, content, lines, not content["written"])
