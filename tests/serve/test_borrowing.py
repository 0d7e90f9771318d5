"""A GPU without models borrows those of a sibling, says so, and gets none of another generation."""

import json

import numpy as np
import pytest
from published_models import LAYER, WORD

from tileseer.cli import main
from tileseer.core.errors import UserError
from tileseer.libraries.library import Loss
from tileseer.libraries.registry import library_of_arch
from tileseer.problems.problem import DIMS, Problem
from tileseer.serve.borrowing import borrow
from tileseer.serve.selector import Selector
from tileseer.serve.tuned import Choice, remember, tuned_path

PROBLEM = Problem.from_dims("forward", "bf16", **LAYER)


@pytest.fixture
def own(models, tmp_path):
    """Folder of the models that a GPU lacks, beside those of a sibling."""
    (tmp_path / "gfx950").symlink_to(models)
    return tmp_path / "gfx950_mi350x"


def test_borrowed_picks_are_labelled_in_text_and_json(own, capsys):
    assert main.main(["select", str(own), "--like", "gfx950", "--problem", WORD, "--top", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == (
        "borrowed: gfx950_mi350x has no models; these are of gfx950 (gfx950_mi355x, 256 compute units, against 256)"
    )
    assert lines[2].startswith("expected loss against models of its own: unknown")
    assert main.main(["select", str(own), "--like", "gfx950", "--problem", WORD, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["borrowed"]
    assert (told["by"], told["arch"], told["loss"]) == ("gfx950_mi350x", "gfx950", None)


def test_borrowed_picks_are_those_of_the_lender_until_the_gpu_has_timed_some(own, selector):
    dims = np.array([[getattr(PROBLEM, name) for name in DIMS]])
    borrowed = Selector.read(own, "forward_bf16", like="gfx950")
    assert borrowed.rank(PROBLEM) == selector.rank(PROBLEM) and selector.borrowed is None
    assert borrowed.select(dims).candidate.tolist() == selector.select(dims).candidate.tolist()
    last = selector.rank(PROBLEM)[-1]["candidate"]
    path = tuned_path(own, "forward_bf16")
    remember(path, [Choice(PROBLEM.dims, last, 0.1, 3, "gfx950_mi350x", "simulated")])
    assert Selector.read(own, "forward_bf16", like="gfx950").tuned(PROBLEM).candidate == last


@pytest.mark.parametrize(
    ("name", "like", "message"),
    [
        ("gfx950", "gfx950", "has models of its own"),
        ("mi350x", "gfx950", "the last word names your GPU"),
        ("gfx950_mi350x", "../gfx950", "is no arch"),
        ("gfx950_mi350x", "gfx942", "has no such models; it has gfx950"),
        ("gfx950_mi350x_miopen", "gfx950", "has ck_tile candidates, but gfx950_mi350x_miopen names miopen ones"),
        ("gfx942_mi308x", "gfx950", r"gfx942 \(cdna3\) and gfx950 \(cdna4\) are of different generations; a model of"),
        ("gfx906", "gfx950", r"gfx906 \(gfx906\) and gfx950 \(cdna4\)"),
    ],
)
def test_models_of_no_sibling_are_refused_with_the_reason(own, name, like, message):
    with pytest.raises(UserError, match=message):
        borrow(own.with_name(name), like)


def test_what_borrowing_costs_follows_from_the_compute_units(own, monkeypatch):
    library = library_of_arch("gfx950")
    known = (Loss(1.5, "measured", 1.0, 2.0), Loss(4.0, "estimated", 5.0, 9.0))
    monkeypatch.setitem(vars(library), "borrowed", known)
    assert borrow(own.with_name("gfx950_300"), "gfx950")[1].loss == known[0]
    assert borrow(own, "gfx950", units=64)[1].loss == known[1]
    with pytest.raises(UserError, match="256 compute units, but gfx950_32 has 32: no model is lent"):
        borrow(own.with_name("gfx950_32"), "gfx950")
    unknown = borrow(own.with_name("gfx950_mi399"), "gfx950")[1]
    assert unknown.loss is None and "a name such as gfx950_80" in unknown.lines[1]
