"""Picks of a published C++ header, compiled with g++, and random problems to compare them on."""

import functools
import subprocess

import numpy as np

from tileseer.core.errors import UserError
from tileseer.problems.problem import DIMS, LAYOUTS, Problem

SHAPES = 500
"""Random shapes of each direction; benchmarks/serving.py compares 10,000."""
MOST = 5
"""Candidates of a short list, at most."""
MAIN = """
#include "selector.hpp"
#include <cstdio>
namespace model = tileseer::OPERATION_ARCH;
int main()
{
    model::Selector selector;
    model::Options options;
    int known, pruned, listed;
    model::Problem problem;
    static_assert(sizeof problem == COLUMNS * sizeof(std::int32_t));
    std::int32_t* dims = &problem.N;
    while(std::scanf("%d %d %d", &known, &pruned, &listed) == 3)
    {
        for(int i = 0; i < COLUMNS; ++i)
            if(std::scanf("%d", dims + i) != 1)
                return 1;
        options.use_known   = known;
        options.pruned_only = pruned;
        model::Pick list[MOST + 1];
        const std::size_t count = listed ? selector.shortlist(problem, list, listed, options) : 0;
        for(std::size_t i = 0; i < count; ++i)
            std::printf("%d %a ", list[i].candidate->row, list[i].score);
        if(listed)
        {
            std::printf("\\n");
            continue;
        }
        const model::Outlook outlook = model::Selector::outlook(problem);
        std::printf("%d %d ", static_cast<int>(outlook.evidence), outlook.gains);
        std::printf("%a %a ", outlook.loss, outlook.own_loss);
        std::printf("%a %d ", outlook.below_half, outlook.cases);
        const model::Pick pick = selector.select(problem, options);
        std::printf("%d %a %d\\n", pick.candidate ? pick.candidate->row : -1, pick.score, pick.known);
    }
}
"""


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


def picks_of_cpp(folder, spec, shapes, known, pruned):
    """Compile the published header with g++ and return its picks, scores, known flags, and what is expected of them."""
    lines = _answers(folder, spec, shapes, f"{known} {pruned} 0")
    *outlooks, rows, scores, flags = zip(*(line.split() for line in lines), strict=True)
    return list(map(int, rows)), list(map(float.fromhex, scores)), [flag == "1" for flag in flags], outlooks


def shortlists_of_cpp(folder, spec, shapes, count, known):
    """The same for its short lists: rows and scores of each."""
    lines = [line.split() for line in _answers(folder, spec, shapes, f"{known} 0 {count}")]
    return [[(int(row), float.fromhex(score)) for row, score in zip(*[iter(line)] * 2, strict=True)] for line in lines]


def _answers(folder, spec, shapes, options):
    words = {"OPERATION": spec.operation, "ARCH": spec.arch, "MOST": str(MOST), "COLUMNS": str(shapes.shape[1])}
    (folder / "main.cpp").write_text(functools.reduce(lambda text, word: text.replace(*word), words.items(), MAIN))
    header = folder / f"models/grouped_conv_{spec.operation}_{spec.arch}"
    program = folder / "main"
    if not program.exists():
        command = ["g++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{header}"]
        subprocess.run([*command, "-o", program, folder / "main.cpp"], check=True)
    text = "".join(f"{options} {' '.join(map(str, row))}\n" for row in shapes.tolist())
    return subprocess.run([program], input=text, text=True, capture_output=True, check=True).stdout.split("\n")[:-1]


def assert_cpp_picks_alike(folder, selector, shapes, known=0, pruned=0):
    """Compare the picks of the published header with those of the selector, to the last bit; return them."""
    picks = selector.select(shapes, use_known=bool(known), pruned_only=bool(pruned))
    rows, scores, flags, outlooks = picks_of_cpp(folder, selector.spec, shapes, known, pruned)
    assert rows == picks.candidate.tolist()
    assert scores == picks.score.tolist()
    assert flags == picks.known.tolist() and picks.known.any() == bool(known)
    assert len(set(rows)) > 3
    assert_cpp_expects_alike(outlooks, selector.expected([_problem(selector.spec, dims) for dims in shapes.tolist()]))
    assert_cpp_lists_alike(folder, selector, shapes[::10], known)
    return picks


def assert_cpp_expects_alike(outlooks, expected):
    """Compare what the header expects of the picks with what Python does, to the last bit."""
    classes, gains, loss, own_loss, below_half, cases = outlooks
    assert list(map(int, gains)) == expected.gains.tolist()
    assert list(map(int, classes)) == expected.classes.tolist()
    assert list(map(int, cases)) == expected.cases.tolist()
    for texts, values in ((loss, expected.loss), (own_loss, expected.own_loss), (below_half, expected.below_half)):
        assert np.array_equal(np.array(list(map(float.fromhex, texts))), values, equal_nan=True)


def _problem(spec, dims):
    problem = Problem.from_dims(*spec.operation.rsplit("_", 1), **dict(zip(DIMS, dims, strict=False)))
    return problem.with_layout(LAYOUTS[dims[-1]] if len(dims) > len(DIMS) else "")


def assert_cpp_lists_alike(folder, selector, shapes, known=0, count=3):
    """Compare the short lists of the published header with those of the selector, to the last bit."""
    spec = selector.spec
    listed = []
    for dims in shapes.tolist():
        problem = _problem(spec, dims)
        ranked = selector.shortlist(problem, count, use_known=bool(known))
        listed.append([(selector.candidates.index(one["candidate"]), one["score"]) for one in ranked])
        assert ranked[:count] == selector.rank(problem)[:count] and len(ranked) <= count + 1
    assert shortlists_of_cpp(folder, spec, shapes, count, known) == listed
