"""What every learner has to keep: inherit ``LearnerSuite``, and pytest runs its tests on yours.

::

    class TestNearest(LearnerSuite):
        learner = "nearest"
"""

import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from tileseer.core import places
from tileseer.data.dataset import Dataset
from tileseer.facts.hardware import read_hardware
from tileseer.facts.model import ModelSettings
from tileseer.learn.features import Features
from tileseer.learn.learner import Recipe, learner_class
from tileseer.learn.model import Model
from tileseer.learn.training import Trained, settings_for, train
from tileseer.libraries.costs.coefficients import load_coefficients
from tileseer.problems.problem import DIMS
from tileseer.serve import serving

RECORDING, GPU = "recorded/sm_90/forward_bf16", "sm_90_h200"
"""Recorded times of kernels, which a checkout has."""
TREES = 20
"""Of a learner that has such a setting."""
ONE_IN = 6
"""Problems of the recording that are learnt from."""


class LearnerSuite:
    """Tests of the learner called ``learner`` on part of a recording."""

    learner = ""

    def test_scores_are_finite_where_they_are_asked_for(self) -> None:
        """Scores have the shape [P, Q], and -inf where no pair is offered."""
        model, problems, offered = _trained(self.learner)[1:]
        scores = model.scorer.score(problems, model.pool, offered)
        assert scores.shape == offered.shape, "score: a row for each problem, and in it a number for each candidate"
        assert scores.dtype == np.float64, "score: the numbers are float64"
        assert np.isfinite(scores[offered]).all(), "score: a finite number for each pair that is offered"
        assert np.isneginf(scores[~offered]).all(), "score: -inf where offered is False"
        every = model.scorer.score(problems.iloc[:2], model.pool)
        assert np.isfinite(every).all(), "score: without offered, a finite number for each pair"

    def test_a_score_depends_on_its_pair_alone(self) -> None:
        """A pair has the same score beside others and alone; who leads has the best one."""
        model, problems, offered = _trained(self.learner)[1:]
        scores = model.scorer.score(problems, model.pool, offered)
        for row in range(3):
            alone = np.zeros((1, len(model.pool)), bool)
            alone[0, scores[row].argmax()] = True
            one = model.scorer.score(problems.iloc[[row]], model.pool, alone)
            assert one.max() == scores[row].max(), "score: a pair gets another number alone than beside others"
        leading = model.scorer.leading(problems, model.pool, offered)
        assert (np.isneginf(leading) | (leading == scores)).all(), "leading: the numbers of score, or -inf"
        assert np.isfinite(leading.max(axis=1)).all(), "leading: a finite number in each row"

    def test_it_ranks_better_than_chance(self) -> None:
        """Its picks are faster than the mean of what runs, on the problems that it has learnt from."""
        trained, model, problems, offered = _trained(self.learner)
        reached = trained.dataset.grid(problems.index.to_numpy())[:, model.positions(trained.dataset)]
        scores = np.where(reached > 0, model.scorer.score(problems, model.pool, offered), -np.inf)
        picked = reached[np.arange(len(reached)), scores.argmax(axis=1)]
        chance = reached.sum(axis=1) / (reached > 0).sum(axis=1)
        assert picked.mean() > chance.mean(), "its picks are no faster than the mean of what runs"

    def test_it_learns_the_same_twice_and_keeps_it(self, tmp_path: Path) -> None:
        """Two trainings write the same bytes, ``FILES`` and no others; what is read scores as what was written."""
        trained, model, problems, offered = _trained(self.learner)
        again = _train(self.learner)
        for one, folder in ((trained, tmp_path / "one"), (again, tmp_path / "two")):
            folder.mkdir()
            one.model.scorer.save(folder)
        names = {path.name for path in (tmp_path / "one").iterdir()}
        assert names == set(model.scorer.FILES), "save: the files that FILES names, and no others"
        for name in sorted(names):
            first, second = ((tmp_path / folder / name).read_bytes() for folder in ("one", "two"))
            assert first == second, f"fit, save: a second training writes another {name}"
        trained.save(tmp_path)
        scores = model.scorer.score(problems, model.pool, offered)
        kept = Model.read(tmp_path).scorer.score(problems, model.pool, offered)
        np.testing.assert_array_equal(kept, scores, "read: it scores otherwise than what was saved")

    def test_it_has_a_header_or_says_why_not(self, tmp_path: Path) -> None:
        """The header, compiled by ``c++``, picks as Python does, or consists of one line with the reason."""
        trained, model, problems, offered = _trained(self.learner)
        template = places.workflow_folder() / "workflow/templates/serving/selector.hpp.j2"
        text = serving.header_of(trained.dataset, model, template)
        if text.startswith("#error") and text.count("\n") == 1:
            return
        (tmp_path / "selector.hpp").write_text(text)
        dims = problems[[*DIMS]].to_numpy(np.int64)
        picked = _picks_of_header(tmp_path, f"{model.spec.operation}_{model.spec.arch}", dims)
        own = model.scorer.score(problems, model.pool, offered).argmax(axis=1)
        wrong = np.flatnonzero(offered.any(axis=1) & (picked != own))
        assert not len(wrong), f"cpp: the header picks another candidate than score on {len(wrong)} problems"


PROGRAM = """
#include "selector.hpp"
#include <cstdio>
int main()
{
    tileseer::NAMESPACE::Selector selector;
    tileseer::NAMESPACE::Options options;
    options.use_known = false;
    tileseer::NAMESPACE::Problem problem;
    while(std::scanf("%d", &problem.N) == 1)
    {
        for(int i = 1; i < DIMENSIONS; ++i)
            if(std::scanf("%d", &problem.N + i) != 1)
                return 1;
        const auto pick = selector.select(problem, options);
        std::printf("%d\\n", pick.candidate ? pick.candidate->row : -1);
    }
}
"""


def _picks_of_header(folder: Path, namespace: str, dims: np.ndarray) -> np.ndarray:
    """Return the picks of the header in ``folder``, rows of the pool, for problems int64 [P, 19]."""
    source = PROGRAM.replace("NAMESPACE", namespace).replace("DIMENSIONS", str(len(DIMS)))
    command = ["c++", "-std=c++17", "-O1", f"-I{folder}", "-x", "c++", "-", "-o", str(folder / "picks")]
    subprocess.run(command, input=source, text=True, check=True)
    lines = "".join(f"{' '.join(map(str, row))}\n" for row in dims.tolist())
    found = subprocess.run([folder / "picks"], input=lines, text=True, check=True, capture_output=True).stdout
    return np.array(found.split(), int)


@cache
def _trained(learner: str) -> tuple[Trained, Model, pd.DataFrame, np.ndarray]:
    """Return what was trained, its model, the P problems that it learnt from, and what runs on them, bool [P, Q]."""
    trained = _train(learner)
    problems = trained.dataset.problems.iloc[np.flatnonzero(trained.dataset.best_tflops > 0)]
    return trained, trained.model, problems, trained.model.supported(problems)


def _train(learner: str) -> Trained:
    assert learner, "write learner = 'NAME' into the class of your tests"
    learner_class(learner)  # the first thing to say
    config = places.workflow_folder() / "config"
    gpu, coefficients = (
        read_hardware(config / "hardware.yaml", GPU),
        load_coefficients(config / "simulated_device.yaml"),
    )
    data = Dataset.read(config / RECORDING).with_estimates(gpu, coefficients)
    data = data.only(data.problem % ONE_IN == 0)
    settings = settings_for(ModelSettings(learner=learner, prior="none", n_estimators=TREES), data)
    return train(data, Recipe(Features.of(settings.features, gpu), settings))
