"""A stranger's learner through the workflow: the package of ``tests/packages`` is trained, judged and published."""

from installed import install

from tileseer.problems.problem import Problem
from tileseer.serve.selector import Selector


def test_a_learner_of_another_package_is_published_like_ours(fresh, tmp_path, monkeypatch):
    fresh.configure(model={"learner": "nearest"})
    assert "there is no learner 'nearest'; installed are trees" in fresh.refuse()
    fresh.variables["PYTHONPATH"] = str(install("nearest_learner", tmp_path))
    run = fresh.make("results/models/gfx950-nearest", "results/reports/gfx950-nearest.html")
    assert "models:   results/models/gfx950-nearest (simulated" in run.output
    assert not (fresh.folder / "results/models/gfx950").exists()
    (folder,) = (fresh.folder / "results/models/gfx950-nearest").glob("grouped_conv_*")
    assert (folder / "scores.npy").is_file() and "struct Place" in (folder / "selector.hpp").read_text()
    monkeypatch.syspath_prepend(fresh.variables["PYTHONPATH"])
    selector = Selector.read(folder.parent, "forward_bf16")
    assert selector.rank(Problem.from_dims("forward", "bf16", N=8, C=64, K=64, Hi=14, Wi=14, Y=3, X=3))
