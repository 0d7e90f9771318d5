"""What a dispatcher runs: the C++ header picks what Python picks, and the lists beside it say what they claim."""

import ctypes
import dataclasses
import json
import random
import subprocess

import learning_samples as samples
import lightgbm
import numpy as np
import pytest
from test_publish import TEMPLATE, make

from tileseer.client.selection import Selector, checked_dims
from tileseer.conv.problem import DIMS, Problem
from tileseer.core import documents, parquet
from tileseer.core.errors import UserError
from tileseer.model import model_files, trainer, trees
from tileseer.model.model import Model
from tileseer.model.schema import Origin
from tileseer.publish import model_folder
from tileseer.serving import cascade, header, known_problems, packing, stages
from tileseer.serving.cascade import Cascade
from tileseer.serving.picker import NO_CANDIDATE, Picker
from tileseer.serving.program import Program
from tileseer.serving.schema import Serving
from tileseer.serving.symbols import Symbol

VARIANTS = ("forward", "bwd_data", "bwd_weight")
SHAPES = 500
"""Random shapes of each direction; benchmarks/serving.py compares 10,000."""
MAIN = """
#include "selector.hpp"
#include <cstdio>
namespace model = tileseer::OPERATION_ARCH;
int main()
{
    model::Selector selector;
    model::Options options;
    int known, pruned;
    model::Problem problem;
    std::int32_t* dims = &problem.N;
    while(std::scanf("%d %d", &known, &pruned) == 2)
    {
        for(int i = 0; i < 19; ++i)
            if(std::scanf("%d", dims + i) != 1)
                return 1;
        options.use_known   = known;
        options.pruned_only = pruned;
        const model::Pick pick = selector.select(problem, options);
        std::printf("%d %a %d\\n", pick.candidate ? pick.candidate->row : -1, pick.score, pick.known);
    }
}
"""


@pytest.fixture(scope="module", params=VARIANTS)
def selector(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("serving")
    training, report, serving = make(folder, request.param)
    model_folder.publish([training], [report], [serving], folder / "models")
    return Selector.load(folder / "models", f"{request.param}_bf16"), folder


def cascade_of(folder, operation):
    """The published model with its stages, as serving has it before it is packed."""
    published = folder / f"models/grouped_conv_{operation}_gfx950"
    figures, model = documents.read(published / model_files.SERVING, Serving), Model.read(published)
    finalists = np.isin(np.arange(len(model.pool)), figures.finalists)
    return Cascade.of(model, finalists, tuple(figures.stages))


def picker(served):
    origin = Origin(operation="forward_bf16", arch="gfx950", device="x", device_kind="simulated")
    pruned = np.ones(len(served.finalists), bool)
    return Picker(packing.packed(served, pruned, known_problems.SCHEMA.empty_table(), origin))


def random_shapes(count, seed=0):
    """Problems of many kinds: strided, dilated, grouped, odd channels, volumes; int64 [count, 19]."""
    draw = np.random.default_rng(seed)
    rows = []
    while len(rows) < count:
        groups = int(draw.choice([1, 1, 1, 2, 8, 32]))
        dims = {"N": int(draw.integers(1, 65)), "G": groups}
        dims |= {name: groups * int(draw.choice([1, 3, 8, 16, 24, 64, 256, 320])) for name in ("C", "K")}
        axes = [("Hi", "Y", "h"), ("Wi", "X", "w")] + [("Di", "Z", "d")] * (draw.random() < 0.4)
        for image, extent, axis in axes:
            dims |= {image: int(draw.integers(1, 120)), extent: int(draw.choice([1, 2, 3, 5, 7]))}
            dims |= {f"stride_{axis}": int(draw.integers(1, 4)), f"pad_{axis}": int(draw.integers(0, 4))}
            dims |= {f"dilation_{axis}": int(draw.choice([1, 1, 1, 2, 3]))}
        try:
            problem = Problem.from_dims("forward", "bf16", **dims)
        except UserError:
            continue
        rows.append([getattr(problem, name) for name in DIMS])
    return np.array(rows)


def picks_of_cpp(folder, operation, shapes, known, pruned, arch="gfx950"):
    """Compile the published header with g++ and return its picks, scores and known flags."""
    (folder / "main.cpp").write_text(MAIN.replace("OPERATION", operation).replace("ARCH", arch))
    header = folder / f"models/grouped_conv_{operation}_{arch}"
    program = folder / "main"
    if not program.exists():
        command = ["g++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{header}"]
        subprocess.run([*command, "-o", program, folder / "main.cpp"], check=True)
    text = "".join(f"{known} {pruned} {' '.join(map(str, row))}\n" for row in shapes.tolist())
    lines = subprocess.run([program], input=text, text=True, capture_output=True, check=True).stdout.split("\n")[:-1]
    rows, scores, flags = zip(*(line.split() for line in lines), strict=True)
    return list(map(int, rows)), list(map(float.fromhex, scores)), [flag == "1" for flag in flags]


@pytest.mark.parametrize(("known", "pruned"), [(0, 0), (1, 0), (1, 1)])
def test_the_header_picks_what_python_picks_to_the_last_bit(selector, known, pruned):
    python, folder = selector
    data = samples.measured(python.spec.variant)
    shapes = np.concatenate([random_shapes(SHAPES), data.problems[list(DIMS)].to_numpy(np.int64)])
    picks = python.select(shapes, use_known=bool(known), pruned_only=bool(pruned))
    rows, scores, flags = picks_of_cpp(folder, python.spec.operation, shapes, known, pruned)
    assert rows == picks.candidate.tolist()
    assert scores == picks.score.tolist()
    assert flags == picks.known.tolist()
    assert (picks.candidate != NO_CANDIDATE).mean() > 0.3
    assert len(set(rows)) > 3
    assert picks.known.any() == bool(known)


SHARED = """
#include "HEADER"
#include <cstring>
extern "C" double score(const std::int32_t* dims)
{
    static tileseer::forward_bf16_gfx950::Selector selector;
    tileseer::forward_bf16_gfx950::Problem problem;
    std::memcpy(&problem, dims, sizeof problem);
    return selector.select(problem).score;
}
"""


@pytest.mark.parametrize("selector", ["forward"], indirect=True)
def test_two_models_of_one_operation_live_in_one_process(selector, tmp_path):
    first = cascade_of(selector[1], "forward_bf16")
    model = first.model
    booster = lightgbm.Booster(model_str=model.text)
    for tree, grown in enumerate(booster.dump_model()["tree_info"]):
        for leaf in range(grown["num_leaves"]):
            booster.set_leaf_output(tree, leaf, 2 * booster.get_leaf_output(tree, leaf))
    origin = Origin(operation="forward_bf16", arch="gfx950", device="x", device_kind="simulated")
    libraries = []
    everything, nothing = np.ones(len(model.pool), bool), known_problems.SCHEMA.empty_table()
    for name, grown in (("plain", model.booster), ("twice", booster)):
        served = Cascade.of(dataclasses.replace(model, booster=grown), everything, first.stages[-1:])
        (tmp_path / f"{name}.hpp").write_text(header.render(TEMPLATE, served, everything, nothing, origin))
        command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-x", "c++", "-", "-o", tmp_path / f"{name}.so"]
        subprocess.run(command, input=SHARED.replace("HEADER", f"{tmp_path}/{name}.hpp"), text=True, check=True)
        libraries.append(ctypes.CDLL(str(tmp_path / f"{name}.so")))
        libraries[-1].score.restype = ctypes.c_double
    for dims in random_shapes(20).astype(np.int32):
        plain, twice = (library.score(dims.ctypes.data_as(ctypes.c_void_p)) for library in libraries)
        assert twice == pytest.approx(2 * plain, abs=1e-5)


def test_the_header_refuses_what_is_no_convolution(selector):
    python, folder = selector
    good = random_shapes(1)[0]
    wrong = []
    for name, value in (("G", 0), ("N", -1), ("pad_h", -1), ("stride_w", 0), ("Y", 5000), ("G", 7)):
        row = good.copy()
        row[DIMS.index(name)] = value
        wrong.append(row)
    rows, _, _ = picks_of_cpp(folder, python.spec.operation, np.array(wrong), 1, 0)
    assert rows == [-1] * len(wrong)
    for row in wrong:
        with pytest.raises(UserError, match="row 0"):
            python.select(row[None])


def test_a_batch_is_its_problems_one_by_one(selector):
    python, _ = selector
    shapes = random_shapes(40, seed=1)
    batch = python.select(shapes)
    for position, row in enumerate(shapes):
        alone = python.select(row[None])
        assert alone.candidate[0] == batch.candidate[position]
        assert alone.score[0] == batch.score[position]


def test_picks_are_supported_and_their_score_is_the_model_s(selector):
    python, folder = selector
    served = cascade_of(folder, python.spec.operation)
    shapes = random_shapes(60, seed=2)
    runs = served.supported(shapes)
    picks = python.select(shapes, use_known=False)
    assert ((picks.candidate >= 0) == runs.any(axis=1)).all()
    has = np.flatnonzero(picks.candidate >= 0)
    assert runs[has, picks.candidate[has]].all()
    matrix = served.features(shapes, has, picks.candidate[has])
    assert picks.score[has].tolist() == python.booster.predict(matrix).tolist()


def test_without_stages_the_pick_is_the_best_finalist(selector):
    python, folder = selector
    served = cascade_of(folder, python.spec.operation)
    shapes = random_shapes(60, seed=2)
    asked = cascade.asked(served.supported(shapes), served.finalists)
    problem, candidate = np.nonzero(asked)
    score = np.full(asked.shape, -np.inf)
    score[problem, candidate] = python.booster.predict(served.features(shapes, problem, candidate))
    whole = picker(dataclasses.replace(served, stages=()))
    has = asked.any(axis=1)
    assert whole.pick(shapes)[0][has].tolist() == score.argmax(axis=1)[has].tolist()


def test_stages_narrow_and_wider_margins_walk_more_trees(selector):
    python, folder = selector
    served = cascade_of(folder, python.spec.operation)
    margins = [stage.margin for stage in served.stages]
    assert [stage.trees for stage in served.stages] == [count for count in stages.TREES if count < 12]
    assert all(margin / trees.UNIT == round(margin / trees.UNIT) >= 0 for margin in margins)
    data = samples.measured(python.spec.variant)
    dims = data.problems[list(DIMS)].to_numpy(np.int64)
    asked = cascade.asked(served.supported(dims), served.finalists)
    dims, asked = dims[asked.any(axis=1)], asked[asked.any(axis=1)]
    few, many = (stages.calibrated(served, dims, asked, walks, 1) for walks in (1, 10**6))
    assert all(a.margin < b.margin for a, b in zip(few, many, strict=True))


def test_where_no_finalist_runs_the_others_are_asked(selector):
    python, folder = selector
    served = cascade_of(folder, python.spec.operation)
    shapes = random_shapes(60, seed=4)
    none = picker(dataclasses.replace(served, finalists=np.zeros_like(served.finalists)))
    every = picker(dataclasses.replace(served, finalists=np.ones_like(served.finalists)))
    assert none.pick(shapes)[0].tolist() == every.pick(shapes)[0].tolist()


def test_a_measured_problem_gets_its_fastest_candidate(selector):
    python, _ = selector
    data = samples.measured(python.spec.variant)
    dims = data.problems[list(DIMS)].to_numpy(np.int64)
    picks = python.select(dims)
    offered = set(python.pool["candidate"])
    for row in np.flatnonzero(picks.known):
        pairs = (data.problem == row) & (data.status == 0)
        pairs &= np.isin(data.candidate, np.flatnonzero(data.candidates["candidate"].isin(offered)))
        best = data.candidate[pairs][np.argmax(data.tflops[pairs])]
        picked = python.pool["candidate"].iloc[picks.candidate[row]]
        assert picked == data.candidates["candidate"].iloc[best]
    assert set(python.known["device_kind"]) == {"simulated"}


def test_dimensions_in_another_form_are_refused():
    for wrong in (np.ones(19, int), np.ones((2, 18), int), np.ones((2, 19))):
        with pytest.raises(UserError, match="shape"):
            checked_dims(wrong)


def test_the_kernel_list_names_headers_and_distinct_registry_keys(selector):
    python, folder = selector
    path = folder / f"serving/{python.spec.operation}" / model_files.KERNELS
    listed = documents.read_json(path)
    assert {entry["kernel"] for entry in listed["kernels"]} == set(python.pool["kernel"])
    keys = {tuple(sorted(entry["registry_key"].items())) for entry in listed["kernels"]}
    assert len(keys) == len(listed["kernels"]) == listed["pool_size"]
    assert all(entry["header"] == f"{entry['kernel']}.hpp" for entry in listed["kernels"])
    assert listed["kernels"][0]["registry_key"]["arch"] == "gfx950"
    assert listed["pruned_size"] == len(listed["pruned"]) <= listed["pool_size"]
    assert listed["oracle_within_pruned"]["train"]["mean"] >= 98.9
    assert (python.pruned == python.pool["kernel"].isin(listed["pruned"])).all()


def test_serving_figures_count_every_validation_problem(selector):
    python, folder = selector
    figures = documents.read_json(folder / f"serving/{python.spec.operation}" / model_files.SERVING)
    report = documents.read_json(folder / f"{python.spec.operation}.json")
    assert figures["validation"]["n_problems"] == report["n_problems"]
    assert figures["validation"]["efficiency"]["full_model"] == report["efficiency"]
    known = parquet.read(folder / f"serving/{python.spec.operation}" / model_files.KNOWN)
    assert figures["known_problems"] == known.num_rows


def test_leaf_values_that_do_not_add_up_exactly_are_refused(selector):
    python, folder = selector
    served = cascade_of(folder, python.spec.operation)
    booster = lightgbm.Booster(model_str=python.booster.model_to_string())
    booster.set_leaf_output(0, 0, 0.1)
    with pytest.raises(UserError, match="multiples"):
        render(dataclasses.replace(served, model=dataclasses.replace(served.model, booster=booster)))


def test_a_model_of_the_reference_s_features_is_served_in_python_and_its_header_says_so():
    data = samples.measured("forward")
    settings = samples.SMALL.model_copy(update={"features": "reference"})
    model = trainer.train(data, samples.product(), settings).model
    served = Cascade.of(model, np.ones(len(model.pool), bool), ())
    scores = model.scores(data.problems)
    row, score, _ = picker(served).pick(data.problems[list(DIMS)].to_numpy(np.int64))
    has = np.isfinite(scores).any(axis=1)
    assert row[has].tolist() == scores.argmax(axis=1)[has].tolist() and (row[~has] == NO_CANDIDATE).all()
    assert score[has].tolist() == scores.max(axis=1)[has].tolist() and has.sum() > 10
    text = render(served)
    assert text.startswith("#error") and "reference" in text


def test_the_command_s_ranking_is_that_of_the_model(selector):
    python, _ = selector
    for row in random_shapes(10, seed=5):
        wanted = Problem.from_dims(python.spec.variant, "bf16", **dict(zip(DIMS, row.tolist(), strict=True)))
        assert python.served.ranked(row) == python.rank(wanted).to_dict("records")


def test_what_picks_in_python_is_read_as_it_was_written(selector, tmp_path):
    python, _ = selector
    python.served.save(tmp_path / "a")
    again = Picker.read(tmp_path / "a")
    again.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    shapes = random_shapes(20, seed=6)
    assert all((a == b).all() for a, b in zip(again.pick(shapes), python.served.pick(shapes), strict=True))
    arrays = dict(np.load(tmp_path / "b"))
    about = arrays["about"].tobytes().replace(b'"multiply"', b'"fromfile"')
    np.savez(tmp_path / "c.npz", **arrays | {"about": np.frombuffer(about, np.uint8)})
    for content in (b"no arrays", (tmp_path / "b").read_bytes()[:-100], (tmp_path / "c.npz").read_bytes()):
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(UserError, match="publish the models again"):
            Picker.read(tmp_path / "a")


HOSTILE = (
    -1,
    0,
    1,
    63,
    65,
    10**6,
    2**31,
    2**63,
    -(2**40),
    0.5,
    1e308,
    None,
    True,
    "",
    "x",
    "object",
    "U9",
    [],
    {},
    [[1]],
)


def places_of(value, path=()):
    """The path of every value of a JSON document."""
    yield path
    for key in range(len(value)) if isinstance(value, list) else list(value) if isinstance(value, dict) else ():
        yield from places_of(value[key], (*path, key))


def damaged_arrays(arrays, draw):
    """Draw one wrong array, or one wrong value of what is no array."""
    arrays = dict(arrays)
    if draw.random() < 0.5:
        about = json.loads(arrays["about"].tobytes())
        *path, last = draw.choice([path for path in places_of(about) if path])
        inner = about
        for key in path:
            inner = inner[key]
        inner[last] = draw.choice(HOSTILE)
        return arrays | {"about": np.frombuffer(json.dumps(about).encode(), np.uint8)}
    name = draw.choice(sorted(set(arrays) - {"about"}))
    values = arrays.pop(name)
    changes = {
        "away": lambda: arrays,
        "type": lambda: arrays | {name: values.astype(draw.choice(("f4", "i8", "u1", "?", "S3")))},
        "shape": lambda: (
            arrays | {name: draw.choice((values[:-1] if values.ndim else values[None], values[..., None]))}
        ),
        "values": lambda: arrays | {name: changed_value(values, draw)},
    }
    return changes[draw.choice(sorted(changes))]()


def changed_value(values, draw):
    values = values.copy()
    kind = values.dtype
    if kind.kind == "f":
        extremes = (np.nan, -np.inf, 0)
    else:
        extremes = (0, 1) if kind.kind == "b" else (7, np.iinfo(kind).min, np.iinfo(kind).max)
    values.flat[draw.randrange(values.size) if values.size else slice(0)] = draw.choice(extremes)
    return values


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_hostile_file_is_refused_or_picks(selector, tmp_path):
    """Files whose hashes would fit: one message, or picks; no other exception."""
    python, _ = selector
    python.served.save(tmp_path / "a.npz")
    sound, shapes, draw, refused = dict(np.load(tmp_path / "a.npz")), random_shapes(5, seed=8), random.Random(8), 0
    for _ in range(70):
        np.savez(tmp_path / "b.npz", **damaged_arrays(sound, draw))
        try:
            read = Picker.read(tmp_path / "b.npz")
        except UserError as error:
            assert "b.npz: is not what a selection reads" in str(error) and "\n" not in str(error)
            refused += 1
            continue
        read.pick(shapes, use_known=True)
        read.ranked(shapes[0])
    assert 20 < refused < 70


def test_compressed_arrays_are_refused_before_they_are_unpacked(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", row=np.zeros(10**7))
    with pytest.raises(UserError, match="an array is compressed"):
        Picker.read(tmp_path / "a.npz")


def test_a_program_computes_what_two_results_share_once():
    n, c = Symbol.input("N"), Symbol.input("C")
    results = Program.of([(n + c) * np.array([1, 2]), (n + c) * np.array([3, 3]), np.where(n > c, n, c)])
    assert [operation for _, operation, _, _ in results.steps].count("add") == 1
    assert [np.asarray(v).tolist() for v in results.run({"N": np.int64(2), "C": np.int64(3)})] == [[5, 10], 15, 3]
    several = results.run({"N": np.array([[2], [4]]), "C": np.array([[3], [1]])})
    assert [v.tolist() for v in several] == [[[5, 10], [5, 10]], [[15], [15]], [[3], [4]]]


def render(served):
    pruned = np.ones(len(served.finalists), bool)
    origin = Origin(operation="forward_bf16", arch="gfx950", device="x", device_kind="simulated")
    return header.render(TEMPLATE, served, pruned, known_problems.SCHEMA.empty_table(), origin)


def test_what_the_header_cannot_compute_is_named():
    value = Symbol.input("N", np.dtype("float64"))
    with pytest.raises(UserError, match="exp"):
        np.exp(value)
    with pytest.raises(UserError, match="branches"):
        bool(value > 1)
    with pytest.raises(UserError, match="cumsum"):
        np.cumsum(value)


def test_the_template_is_no_kernel_template():
    # Kernels are emitted again when one of their templates changes.
    assert TEMPLATE.parent.name == "serving"
