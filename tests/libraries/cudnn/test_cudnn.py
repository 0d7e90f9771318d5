"""cuDNN's plans: names, the replayed recording, the library's own choice, and what a program asks."""

import math
from dataclasses import replace

import learning_samples as samples
import numpy as np
import pytest
from compiled_selector import OWN_CHOICE, compiled_selector
from dataset_files import part_of_recording
from hypothesis import given
from hypothesis import strategies as st
from published_models import SMALL_SERVING
from repository import CONFIG, H200

from tileseer.core import documents
from tileseer.core.errors import UserError
from tileseer.data.dataset import Dataset
from tileseer.data.dataset_files import read_recording
from tileseer.facts.operations import DTYPES, VARIANTS
from tileseer.judge import ranking
from tileseer.learn import model_files, own_choice
from tileseer.learn import training as model_stage
from tileseer.learn.rows import deal
from tileseer.libraries import registry
from tileseer.libraries.cudnn.engines import ENGINES, tile_code
from tileseer.libraries.cudnn.features import CUDNN_FEATURES
from tileseer.libraries.cudnn.kernel import Plan
from tileseer.libraries.names import read_kernel_name
from tileseer.measure.device import STATUSES
from tileseer.problems import kinds
from tileseer.problems.problem import DIMS, Problem, problems_of_frame
from tileseer.serve import serving as stage
from tileseer.serve.selector import NO_CANDIDATE, Selector
from tileseer.serve.tuned import Choice

ARCH, OPERATION = "sm_90_cudnn", "bwd_weight_bf16"
FOLDER = CONFIG / "recorded" / ARCH
knobs = st.lists(st.tuples(st.integers(0, 40), st.integers(-1, 2048)), unique_by=lambda pair: pair[0], max_size=6)


@given(
    st.sampled_from(VARIANTS), st.sampled_from(DTYPES), st.sampled_from([2, 3]), st.sampled_from(list(ENGINES)), knobs
)
def test_a_name_says_the_whole_plan(variant, dtype, ndim, engine, pairs):
    plan = Plan(variant, dtype, ndim, engine, "_".join(f"k{knob}={value}" for knob, value in pairs))
    assert Plan.parse(plan.name) == plan and plan.name.endswith(plan.plan) and plan.settings == dict(pairs)
    assert read_kernel_name(plan.name, ARCH).kernel == plan
    assert registry.library_of_kernels([plan.name]).name == "cudnn"


@pytest.mark.parametrize("plan", ["eng62_k2=07", "eng999", "eng62_", "eng62_k2", "62", "eng62_k2=1_x"])
def test_other_names_are_refused(plan):
    with pytest.raises(UserError, match="kernel name"):
        Plan.parse(f"cudnn_conv_fwd_bf16_2d_{plan}")


def test_tiles_of_engines_are_told_apart():
    codes = [tile_code(engine, tile) for engine, count in ENGINES.items() for tile in (None, *range(count + 1))]
    assert codes == list(range(len(codes)))
    # A tile that nobody measured is no other engine's.
    assert tile_code(62, 1000) == tile_code(62, ENGINES[62])


def test_features_say_engine_tile_and_slices():
    plans = [Plan("forward", "bf16", 2, 62, "k2=7_k13=1_k27=4_k28=2"), Plan("forward", "bf16", 2, 49, "k0=12_k2=3")]
    columns = CUDNN_FEATURES.candidate_columns(Plan.frame(plans), H200)
    assert columns["engine"].tolist() == [62, 49] and columns["split"].tolist() == [1, 12]
    assert columns["cluster_m"].tolist() == [4, -1] and columns["tile"].tolist() == [tile_code(62, 7), tile_code(49, 3)]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A part of the recording as measurements, and its file."""
    folder = part_of_recording(tmp_path_factory.mktemp("cudnn") / "dataset", "sm_90_cudnn", OPERATION, 6)
    return Dataset.read(folder), folder


@pytest.fixture(scope="module")
def trained(measured):
    """A small model of it, which is too small to find a margin, or to know a kind of layers, by itself."""
    settings = model_stage.settings_for(samples.SMALL, measured[0])
    assert (settings.features, settings.prior) == ("cudnn", "none")
    found = samples.train(measured[0], H200, settings)
    assert len(found.model.spec.own_margins) == len(kinds.MARGIN_KINDS)
    return replace(found, model=with_margin(samples.with_known_kinds(found.model), 0.03))


def with_margin(model, margin):
    """The same model with another margin for all groupings."""
    return replace(model, spec=model.spec.model_copy(update={"own_margins": [margin] * len(kinds.MARGIN_KINDS)}))


def test_a_dataset_has_what_the_library_offered(measured):
    data = Dataset.read(FOLDER / OPERATION)
    assert not np.isnan(data.rank).any()
    wrong = np.unique(data.candidate[data.status == STATUSES.index("wrong_result")])
    assert len(wrong) and not np.isin(data.candidate[data.ok], wrong).any()
    own = own_choice.library_choices(measured[0])
    times = np.full((len(measured[0].problems), len(measured[0].candidates)), np.inf)
    times[measured[0].problem, measured[0].candidate] = measured[0].rank
    # No plan that runs stands before the library's own choice.
    ok = measured[0].status == 0
    first = np.full(len(own), np.inf)
    np.minimum.at(first, measured[0].problem[ok], measured[0].rank[ok])
    has = own != own_choice.NONE
    assert (times[np.flatnonzero(has), own[has]] == first[has]).all() and has.mean() > 0.9


def test_another_candidate_takes_a_lead_that_is_larger_than_the_margin():
    scores = np.tile([0.0, -0.1, -0.3], (5, 1))
    scores[2, 1] = -np.inf
    sizes = {name: np.full(5, 64) for name in ("C", "K", "Di", "Hi", "Wi")} | {"G": np.array([1, 1, 1, 1, 64])}
    margins, inside = [0.2, 0.05, 0.2, 0.2, 0.2], np.array([True, True, True, False, True])
    picks = own_choice.chosen(sizes, scores, np.array([1, 2, 1, 2, 1]), inside, margins)
    # The own choice is kept that the model does not know, and outside of what was measured. Each kind has its margin.
    assert picks.tolist() == [1, 0, 1, 2, 0]


def test_each_kind_has_the_margin_that_gains_most_where_nothing_is_harmed(measured, monkeypatch):
    data, own = measured[0], own_choice.library_choices(measured[0])
    monkeypatch.setattr(own_choice, "LEAST_LAYERS", 1)
    sure, inside = np.full((len(data.problems), len(data.candidates)), -np.inf), np.ones(len(data.problems), bool)
    ok = data.status == 0
    sure[data.problem[ok], data.candidate[ok]] = np.log(data.tflops[ok])
    assert own_choice.margins(data, sure, own, inside) == [0.0] * len(kinds.MARGIN_KINDS)
    # Who names the worst plan of grouped problems first, by far, is believed of the others alone.
    kind, grouped = kinds.margin_kind(data.problems), kinds.MARGIN_KINDS.index("grouped")
    wrong = np.where((kind == grouped)[:, None] & np.isfinite(sure), -sure, sure)
    found = own_choice.margins(data, wrong, own, inside)
    assert found[grouped] == own_choice.NEVER and sum(found) == own_choice.NEVER
    # A plan that never ran is not picked, whatever its score.
    barred = np.flatnonzero(np.bincount(data.candidate[ok], minlength=len(data.candidates)) == 0)
    sure[:, barred] = 1000.0
    assert len(barred) and own_choice.margins(data, sure, own, inside) == [0.0] * len(kinds.MARGIN_KINDS)
    # One pick that is six percent slower than the own choice has to be kept, whatever the others gain.
    one = np.flatnonzero((kind == 0) & (own != own_choice.NONE))[0]
    slow = np.flatnonzero((data.problem == one) & ok & (data.tflops < data.tflops[ok].max() * 0.9))
    believed = sure.copy()
    believed[one, data.candidate[slow[data.tflops[slow].argmin()]]] = sure[one].max() + 0.5
    assert own_choice.margins(data, believed, own, inside)[0] > 0.4
    # It does no harm where the problem is outside of what was measured.
    inside[one] = False
    assert own_choice.margins(data, believed, own, inside)[0] == 0.0
    # Of few layers nothing can be said.
    monkeypatch.setattr(own_choice, "LEAST_LAYERS", len(data.problems) + 1)
    assert own_choice.margins(data, sure, own, inside) == [own_choice.NEVER] * len(kinds.MARGIN_KINDS)


def test_the_other_data_type_is_learnt_from_and_not_picked(measured, trained):
    data = measured[0]
    names = data.candidates["kernel"].str.replace("_bf16_", "_fp16_")
    candidates = data.candidates.assign(kernel=names, candidate=names)
    problems = data.problems.assign(problem_key=data.problems["problem_key"].str[::-1], dtype="fp16")
    other = replace(data, operation="bwd_weight_fp16", problems=problems, candidates=candidates)
    settings = model_stage.settings_for(samples.SMALL, data)
    both = samples.train(data, H200, settings, other_dtype=other)
    assert both.model.pool["kernel"].tolist() == trained.model.pool["kernel"].tolist()
    assert both.manifest.unique_problems == 2 * trained.manifest.unique_problems
    assert both.model.scorer.text != trained.model.scorer.text
    # A layer in both types is one: no model is judged on a layer that it has learnt in the other type.
    pairs = both.prepared.pairs
    fold = deal(pairs.problems["layer_family"].to_numpy(), pairs.problem, 3, seed=1)
    half = len(data.problems)
    assert (fold[:half] == fold[half:]).all() and (fold >= 0).sum() > 30


def test_the_own_choice_is_a_candidate_of_the_model(measured, trained):
    kept = []
    for margin in (0.0, 0.1, 10.0):
        scored = ranking.rank_held_out(with_margin(trained.model, margin), measured[0])
        kept.append(np.mean(scored.picks == own_choice.library_choices(measured[0])[scored.rows]))
    assert kept[0] < kept[1] < kept[2] == 1
    assert trained.model.spec.library == read_recording(FOLDER).library


def test_a_layer_whose_first_plan_was_wrong_is_left_to_the_library_and_has_no_figure(measured, trained):
    data = measured[0]
    own = own_choice.library_choices(data)
    row = np.flatnonzero(data.held_out & (own != own_choice.NONE))[0]
    status = np.where((data.problem == row) & (data.candidate == own[row]), own_choice.WRONG, data.status)
    changed = replace(data, status=status)
    assert own_choice.library_choices(changed)[row] == own_choice.NONE and changed.best_tflops[row] > 0
    before, after = (ranking.rank_held_out(trained.model, one).rows.tolist() for one in (data, changed))
    assert after == [one for one in before if one != row]


@pytest.fixture(scope="module")
def published(measured, trained, tmp_path_factory):
    """A folder with the header of the model, and its selector."""
    served = stage.serve_model(measured[0], trained.model, SMALL_SERVING)
    folder = tmp_path_factory.mktemp("models")
    header = folder / f"grouped_conv_{OPERATION}_{ARCH}" / model_files.SELECTOR
    header.parent.mkdir()
    header.write_text(served.header)
    documents.write_document(header.with_name(model_files.SPEC), trained.model.spec)
    served.selector.folder = header.parent
    return folder, served.selector


def test_a_program_gets_the_plan_that_python_gets(measured, trained, published, tmp_path, capfd):
    data, library = measured[0], trained.model.spec.library
    header = published[0] / f"grouped_conv_{OPERATION}_{ARCH}"
    choose, shortlist = compiled_selector(header, f"{OPERATION}_{ARCH}", tmp_path / "selector.so")
    plans = np.array([Plan.parse(name).plan for name in trained.model.pool["kernel"]], object)
    positions = trained.model.positions(data)
    offered, own = own_choice.offered(data)[:, positions], own_choice.library_choices(data)
    moved = 0
    for row, problem in enumerate(problems_of_frame(data.problems)):
        first = np.flatnonzero(positions == own[row])
        listed = [*first, *(place for place in np.flatnonzero(offered[row]) if place not in first)]
        dims = [getattr(problem, name) for name in DIMS]
        found = choose(dims, plans[listed].tolist(), library)
        assert (NO_CANDIDATE if found < 0 else listed[found]) == published[1].choose(problem, plans[listed], library)
        # One that the model does not know stands first: nothing says what another would gain.
        assert choose(dims, ["eng0_k99=1", *plans[listed]], library) == OWN_CHOICE
        moved += found >= 0
        # The short list: the library's own choice, and what the model has first among the others that are offered.
        ranked = published[1].shortlist(problem, 2, plans[listed].tolist(), library)
        assert shortlist(dims, plans[listed].tolist(), library, 2) == [(row["offered"], row["score"]) for row in ranked]
        assert all(row["kernel"].endswith(f"_{plans[listed][row['offered']]}") for row in ranked)
        assert len(ranked) == min(3, len(listed)) and [row["offered"] for row in ranked].count(0) == 1
        assert [row["rank"] for row in ranked if row["offered"] != 0] in ([], [1], [2], [1, 2], [1, 3], [2, 3])
        assert shortlist(dims, ["eng0_k99=1", *plans[listed]], library, 2) == [(0, -math.inf)]
    assert 0 < moved < len(own)
    # Where nothing like the layer was measured, the model decides nothing.
    far = Problem.from_dims("bwd_weight", "bf16", N=100_000, C=2, K=2, Hi=64, Wi=64, Y=7, X=7)
    assert choose([getattr(far, name) for name in DIMS], plans[listed].tolist(), library) == OWN_CHOICE
    assert published[1].choose(far, plans[listed], library) == NO_CANDIDATE
    # Of another version nothing is known: the library's own choice, and one warning.
    for _ in range(2):
        assert choose(dims, plans[listed].tolist(), "cudnn 90100") == OWN_CHOICE
        assert shortlist(dims, plans[listed].tolist(), "cudnn 90100", 3) == [(0, -math.inf)]
    assert capfd.readouterr().err.count("measured with cudnn 91900") == 1


def test_python_warns_of_another_version(trained, published):
    problem = Problem.from_dims("bwd_weight", "bf16", N=32, C=64, K=64, Hi=56, Wi=56, Y=3, X=3, pad_h=1, pad_w=1)
    plans = [Plan.parse(name).plan for name in trained.model.pool["kernel"] if "_2d_" in name]
    with pytest.warns(UserWarning, match="measured with 'cudnn 91900', not with 'cudnn 92000'"):
        assert published[1].choose(problem, plans, "cudnn 92000") == NO_CANDIDATE
        (row,) = published[1].shortlist(problem, 3, plans, "cudnn 92000")
        assert row["offered"] == 0 and row["kernel"].endswith(plans[0])
    with pytest.raises(UserError, match=r"'cudnn 9.19.0'; write its name and the number it reports, as 'cudnn 91900'"):
        published[1].choose(problem, plans, "cudnn 9.19.0")
    assert published[1].choose(problem, [], "cudnn 91900") == NO_CANDIDATE


def test_a_tuned_plan_goes_first_where_it_is_offered(trained, published):
    problem = Problem.from_dims("bwd_weight", "bf16", N=32, C=64, K=64, Hi=56, Wi=56, Y=3, X=3, pad_h=1, pad_w=1)
    names = [name for name in trained.model.pool["kernel"] if "_2d_" in name]
    plans = [Plan.parse(name).plan for name in names]
    other = published[1]
    own = Selector(other.model, other.pruned, other.known)
    dims = tuple(getattr(problem, name) for name in DIMS)
    own.use_tuned([Choice(dims, names[5], 0.1, 3, "NVIDIA H200", "measured")])
    chosen = own.choose(problem, plans, "cudnn 91900")
    assert trained.model.pool["kernel"].iloc[chosen] == names[5]
    assert own.choose(problem, plans[:5], "cudnn 91900") == published[1].choose(problem, plans[:5], "cudnn 91900")
