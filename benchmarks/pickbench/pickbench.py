#!/usr/bin/env python3
"""PickBench: how good a picker of kernels is on recorded times of layers that it has not seen.

An entry is a Python file with ``pick(problems, candidates)``: two tables with a row for each pair of a problem and a
candidate that was timed. It returns a score for each row; of a problem, the highest is picked, NaN never is. Where the
file has ``learn(problems, candidates, milliseconds)`` too, it is called before, with the rows of the other layers.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd

from tileseer.core.errors import UserError, mistakes_of, reports_user_errors
from tileseer.data.dataset import Dataset
from tileseer.data.dataset_files import read_recording
from tileseer.facts.hardware import target
from tileseer.judge.figures import Figures, figures, interval_of_mean
from tileseer.judge.layers import best_possible
from tileseer.judge.ranking import columns_of, finite_or_least
from tileseer.learn.left_out import layers_at_any_size
from tileseer.libraries.registry import library_of_arch
from tileseer.problems.problem import DIMS

HERE = Path(__file__).parent
RECORDED = HERE.parents[1] / "config/recorded"
SHARE = 0.3
"""Of the layers, those that are left out where no networks were set aside."""
PROBLEM = ["arch", "device", "recording", "operation", "variant", "dtype", "layout", "ndim", *DIMS, "problem_key"]
CANDIDATE = ["candidate", "kernel", "place"]
"""``place``: in the order in which the library itself would try them, from 0; NaN where it has none."""


@dataclass(frozen=True)
class Track:
    """What is judged, and what may be learnt from."""

    judged: str
    """Folder of a recording below ``config/recorded``; empty: ``--recording`` names it."""
    learnt: str = ""
    """Another recording that is learnt from; empty: the other layers of the same."""


TRACKS = {
    "mi300x": Track("gfx942_miopen"),
    "mi300x-drift": Track("gfx942_miopen", "gfx942_miopen/earlier"),
    "mi210": Track("gfx90a_miopen"),
    "mi210-to-mi250x": Track("", "gfx90a_miopen"),
    "mi355x": Track("gfx950_mi355x"),
    "h200-cutlass": Track("sm_90"),
    "h200-cudnn": Track("sm_90_cudnn"),
}


@dataclass(frozen=True)
class Part:
    """The rows of one operation: those to learn from, those to judge, and what is possible on the latter."""

    learnt: pd.DataFrame
    judged: pd.DataFrame
    possible: pd.Series
    """By problem."""


def parts_of(track: Track, recording: Path, seed: int) -> list[Part]:
    """Return the parts of a track, one an operation that both recordings have."""
    folder = RECORDED / track.judged if track.judged else recording
    other = RECORDED / track.learnt if track.learnt else folder
    operations = [name for name in read_recording(folder).operations if name in read_recording(other).operations]
    return [_part(folder / name, other / name, seed) for name in operations]


def _part(folder: Path, other: Path, seed: int) -> Part:
    judged = Dataset.read(folder)
    learnt = judged if other == folder else Dataset.read(other)
    layers = layers_at_any_size(judged)
    if judged.held_out.any() and learnt is judged:
        out = judged.held_out
    else:
        draws = {layer: hashlib.sha256(f"{seed},{layer}".encode()).digest()[0] / 256 for layer in set(layers)}
        out = np.array([draws[layer] < SHARE for layer in layers])
    teaches = ~np.isin(layers_at_any_size(learnt), layers[out])
    if learnt is judged:
        teaches &= judged.trains
    rows = _rows(judged, folder, out)
    several = rows.groupby("problem")["milliseconds"].transform("size") > 1
    places = np.flatnonzero(out)
    error = judged.spread_out(places, judged.relative_error, np.nan)
    possible = pd.Series(best_possible(judged.grid(places), error), places)
    return Part(_rows(learnt, other, teaches), rows[several], possible)


def _rows(dataset: Dataset, folder: Path, chosen: np.ndarray) -> pd.DataFrame:
    """Return a row for each pair of the chosen problems (bool [P]) that ran."""
    pairs = np.flatnonzero(dataset.ok & chosen[dataset.problem])
    problem, candidate = dataset.problem[pairs], dataset.candidate[pairs]
    problems = dataset.problems.assign(
        arch=dataset.arch, device=dataset.device, operation=dataset.operation, recording=str(folder.parent)
    )
    if "layout" not in problems:
        problems["layout"] = ""
    table = problems[PROBLEM].iloc[problem].reset_index(drop=True)
    names = dataset.candidates[["candidate", "kernel"]].iloc[candidate].reset_index(drop=True)
    times = dataset.latency_ms[pairs]
    return table.join(names).assign(place=dataset.rank[pairs], problem=problem, milliseconds=times)


def load_entry(path: Path) -> ModuleType:
    """Load an entry; ``UserError`` for a file without ``pick``."""
    if not path.is_file():
        raise UserError(f"{path}: there is no such file; give an entry, such as {HERE / 'entries/fixed_order.py'}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path}: is no Python file; give an entry, a .py")
    entry = importlib.util.module_from_spec(spec)
    with mistakes_of(str(path)):
        spec.loader.exec_module(entry)
    if not callable(getattr(entry, "pick", None)):
        raise UserError(f"{path}: it has no function pick(problems, candidates)")
    return entry


def picks(entry: ModuleType, parts: list[Part], seed: int) -> pd.DataFrame:
    """Return the rows to judge of all parts in a drawn order, with the entry's scores and a number a problem."""
    # A find-db lists the fastest first: the order of rows says nothing here.
    learnt = pd.concat([part.learnt for part in parts]).sample(frac=1, random_state=seed).reset_index(drop=True)
    judged = pd.concat([part.judged.assign(part=number) for number, part in enumerate(parts)])
    judged = judged.sample(frac=1, random_state=seed).reset_index(drop=True)
    name, known = entry.__name__, columns_of(judged[PROBLEM], judged[CANDIDATE])
    if hasattr(entry, "learn"):
        with mistakes_of(f"{name}: learn(problems, candidates, milliseconds)", known):
            entry.learn(learnt[PROBLEM], learnt[CANDIDATE], learnt["milliseconds"].to_numpy())
    with mistakes_of(f"{name}: pick(problems, candidates)", known):
        found = entry.pick(judged[PROBLEM], judged[CANDIDATE])
    if isinstance(found, pd.Series):
        if not found.index.isin(judged.index).all():
            raise UserError(f"{name}: pick: returned a Series with an index of its own; keep that of the candidates")
        # In whatever order its rows are.
        found = found.reindex(judged.index)
    score = finite_or_least(f"{name}: pick", found, (len(judged),), "one for each row, larger is faster")
    score[~np.isfinite(score)] = np.nan
    return judged.assign(score=score, number=judged.groupby(["part", "problem"]).ngroup())


def judge(judged: pd.DataFrame, parts: list[Part], without: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return a row a problem in the columns of ``layers.LAYERS`` that ``figures`` reads.

    ``without``: such rows of what runs without an entry, by which harm is told.
    """
    best = judged.groupby("number")["milliseconds"].min()
    ranked = judged[judged["score"].notna()].sort_values(["number", "score"], ascending=[True, False], kind="stable")
    reached = {
        count: (best / ranked.groupby("number").head(count).groupby("number")["milliseconds"].min()).reindex(best.index)
        for count in (1, 2, 3)
    }
    first = judged.drop_duplicates("number").set_index("number").loc[best.index]
    places = zip(first["part"], first["problem"], strict=True)
    table = pd.DataFrame(
        {
            "uses": 1.0, "best_us": 1000 * best, "estimated_us": np.nan, "pick_us": 1000 * best / reached[1],
            "efficiency": reached[1].fillna(0.0), "efficiency_of_2": reached[2].fillna(0.0),
            "efficiency_of_3": reached[3].fillna(0.0), "own_choice": np.nan,
            "possible": [parts[part].possible[problem] for part, problem in places],
        }
    )  # fmt: skip
    return table.assign(fixed_order=table["efficiency"] if without is None else without["efficiency"])


def line(name: str, rows: pd.DataFrame, found: Figures) -> dict[str, object]:
    """Return what is told of an entry."""
    return {
        "entry": name,
        "layers": found.layers,
        "answers": round(100 * float((rows["efficiency"] > 0).mean()), 2),
        "mean": found.efficiency.mean,
        "interval": interval_of_mean(rows["efficiency"].to_numpy()),
        "p10": found.efficiency.p10,
        "best_of_2": found.best_of_2.mean,
        "sum_over_best": found.sum_over_best,
        "lost_in_longest": found.lost_in_longest,
        "harmed": found.harmed,
        "harm_factor": found.harm_factor,
        "possible_mean": found.possible and found.possible.mean,
        "possible_sum": found.sum_possible,
    }


@reports_user_errors
def main() -> int:
    """Judge entries on a track; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("track", choices=list(TRACKS))
    parser.add_argument("entries", nargs="+", type=Path, metavar="ENTRY.py")
    parser.add_argument("--recording", type=Path, help="of the board that a track judges and this repository has not")
    parser.add_argument("--seed", type=int, default=1, help="which layers are left out, and the order of the rows")
    args = parser.parse_args()
    track = TRACKS[args.track]
    if not track.judged and args.recording is None:
        raise UserError(f"{args.track}: give --recording FOLDER, a recording that `tileseer import find-db` made")
    if track.judged and args.recording:
        raise UserError(f"--recording: the track {args.track} judges the times of {track.judged}; leave it out")
    if args.recording:
        given, learnt = (read_recording(folder).arch for folder in (args.recording, RECORDED / track.learnt))
        if target(given) != target(learnt) or library_of_arch(given) is not library_of_arch(learnt):
            raise UserError(f"--recording {args.recording}: is of {given}, and the track learns from {learnt}")
    parts = parts_of(track, args.recording, args.seed)
    fixed = judge(picks(load_entry(HERE / "entries/fixed_order.py"), parts, args.seed), parts)
    for path in args.entries:
        rows = judge(picks(load_entry(path), parts, args.seed), parts, fixed)
        print(json.dumps({"track": args.track, "seed": args.seed, **line(path.stem, rows, figures(rows))}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
