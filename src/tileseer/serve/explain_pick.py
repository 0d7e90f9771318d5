"""Why a model picks a candidate: the ranking, what speaks for its first candidate, the nearest measured problems."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tileseer.core.errors import UserError, is_it
from tileseer.learn import model_files
from tileseer.learn.evidence import STEPS_OF_AN_OCTAVE, EvidenceClass
from tileseer.learn.model import Model
from tileseer.learn.model_schema import Origin
from tileseer.libraries.registry import check_support, library_of_arch
from tileseer.problems.problem import DIMS, LAYOUTS, Problem, problem_frame
from tileseer.serve.selector import Outlook, Ranked, Selector

PROBLEMS_SHOWN = 5
"""Measured problems that are shown."""


class Explanation(Origin):
    """Reasons of a pick."""

    problem: dict[str, int | str]
    supported_candidates: int
    fastest_measured: str | None
    ranking: list[dict[str, Any]]
    """Rank, candidate, score and what the model predicts of it."""
    against: str | None
    """The candidate that the lead of the pick is over; None where there is no other."""
    score_ahead: float | None = None
    contributions: list[dict[str, Any]]
    """A feature, its contribution to the lead, and its value in ``pick`` and ``other``."""
    other_features: float
    evidence: EvidenceClass
    """How the problem stands to what was measured."""
    outlook: Outlook
    """The same, and what is expected of the pick."""
    library: str | None
    """What offers the candidates and has a choice of its own, with its version."""
    nearest_measured_problems: list[dict[str, Any]]
    """Of the problem's kind: a problem, its distance in octaves, and its fastest candidate."""


def explain_pick(models: Path, problem: Problem, top: int = 5, against: str | None = None) -> Explanation:
    """Return the reasons of the models' pick for ``problem``.

    The pick is explained against the candidate ``against``, by default the second of the ranking. ``UserError`` where
    nothing supports the problem, or ``against`` is not among what does.
    """
    return model_files.of_one_version(models, lambda: _explain_pick(models, problem, top, against))


def _explain_pick(models: Path, problem: Problem, top: int, against: str | None) -> Explanation:
    selector = Selector.read(models, f"{problem.variant}_{problem.dtype}")
    found, model = selector.answer(problem), selector.model
    ranked = found.ranked
    if not ranked:
        raise UserError(f"no candidate of {models} supports the problem: {why_none(model, problem)}")
    ranking = [_shown(row) for row in ranked[:top]]
    return Explanation(
        **dict(Origin.of(model.spec)),
        problem={name: getattr(problem, name) for name in (*DIMS, *(["layout"] if problem.layout else []))},
        supported_candidates=len(ranked),
        fastest_measured=found.fastest_measured,
        ranking=ranking,
        **_reasons(model, problem, ranked, against),
        evidence=found.outlook.evidence,
        outlook=found.outlook,
        library=selector.library,
        nearest_measured_problems=_neighbours(selector, problem),
    )


def why_none(model: Model, problem: Problem) -> str:
    """Return why no candidate supports the problem, in words."""
    return "; ".join(f"{count} candidates: {reason}" for reason, count in refusals(model, problem, model.pool).items())


def refusals(model: Model, problem: Problem, candidates: pd.DataFrame) -> dict[str, int]:
    """Return how many of the candidates each support rule refuses, by its reason, the most first."""
    rules = library_of_arch(model.spec.arch).rules.every
    verdicts = check_support(problem_frame([problem]), candidates, model.spec.variant, model.hardware)[0]
    return dict(Counter(rules[verdict - 1].reason for verdict in verdicts.tolist() if verdict).most_common())


def _shown(row: Ranked) -> dict[str, Any]:
    """Return a candidate with the model's predictions; the first one of a ranking is the pick."""
    return {
        **{name: row[name] for name in ("rank", "candidate", "score")},
        "predicted_time_over_that_of_the_pick": round(row["predicted_time"] / 100, 4),
        "predicted_efficiency": round(row["predicted_efficiency"], 4),
    }


def _reasons(model: Model, problem: Problem, ranked: list[Ranked], against: str | None) -> dict[str, Any]:
    """Return what features add to the lead of the first candidate over another; nothing if it is the only one."""
    if against is None and len(ranked) == 1:
        return {"against": None, "contributions": [], "other_features": 0.0}
    score = {row["candidate"]: row["score"] for row in ranked}
    name = against or ranked[1]["candidate"]
    pool = pd.Index(model.pool["candidate"])
    if name in pool and name not in score:
        why = "; ".join(refusals(model, problem, model.pool.iloc[[pool.get_loc(name)]]))
        raise UserError(f"--against {name} cannot run the problem: {why}")
    if name not in score:
        raise UserError(
            f"--against {name!r} is no candidate of the model{is_it(name, score)}; a candidate is a kernel's name, "
            "with @splitkN behind it for a split-K of N, as in the ranking without --against"
        )
    pick, other = (np.array([pool.get_loc(one)]) for one in (ranked[0]["candidate"], name))
    (parts,) = model.scorer.explain(problem_frame([problem]), model.pool, pick, other)
    ahead = ranked[0]["score"] - score[name]
    return {
        "against": name,
        "score_ahead": round(ahead, 6),
        "contributions": [
            {"feature": part.feature, "contribution": part.contribution, "pick": part.of_pick, "other": part.of_best}
            for part in parts
        ],
        "other_features": round(ahead - sum(part.contribution for part in parts), 6),
    }


def _neighbours(selector: Selector, problem: Problem) -> list[dict[str, Any]]:
    """Return the nearest measured problems of a problem's kind on which candidates were compared, nearest first."""
    rows, away = selector.evidence.nearest(selector.evidence_columns([problem]), PROBLEMS_SHOWN)
    found = []
    for row, square in zip(rows[0][rows[0] >= 0].tolist(), away[0].tolist(), strict=False):
        near = {name: selector.known[name][row].as_py() for name in (*selector.model.columns, "candidate")}
        fastest, code = near.pop("candidate"), near.pop("layout", None)
        found.append(
            {
                "problem": near | ({} if code is None else {"layout": LAYOUTS[code]}),
                "octaves": round(math.sqrt(square) / STEPS_OF_AN_OCTAVE, 2),
                "fastest": fastest,
            }
        )
    return found
