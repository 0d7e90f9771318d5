"""Texts and problems of others in the C++ header: no text becomes code, and no problem is too large for its kernels."""

import re
import subprocess

import numpy as np
import pytest
from cpp_selectors import assert_cpp_picks_alike, picks_of_cpp, random_shapes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from published_models import SMALL_SERVING, train_on_recording

from tileseer.core import templates
from tileseer.core.errors import UserError
from tileseer.learn import model_files
from tileseer.problems.problem import DIMS, INT32_MAX, Problem
from tileseer.serve import header
from tileseer.serve import serving as stage
from tileseer.serve.selector import NO_CANDIDATE, checked_dims

TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|//(?:\\\n|[^\n])*|/\*.*?\*/', re.DOTALL)
TEXTS = ("operation", "arch", "device", "device_kind", "library")
EVIL = st.builds(
    "".join,
    st.lists(st.sampled_from([
        '"', "\\", "\n", "\r", "*/", "/*", "//", "??/", "??'", "#include <evil>", "\u2028", "\0", "'", 'R"(',
        ')"', "%s", "; inline const int evil = 1;", "}", "{{", "{%", "\t", "é", "\ud800", "u8", "\x1f",
    ]) | st.text(max_size=3), max_size=6),
)  # fmt: skip


def code_of(text):
    """A C++ text without its strings and comments, and its strings."""
    strings = [match[0] for match in TOKEN.finditer(text) if match[0].startswith('"')]
    return TOKEN.sub(lambda match: '""' if match[0].startswith('"') else "", text), strings


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    """The served model of a small recording, and what its header's template is filled with."""
    folder = tmp_path_factory.mktemp("served")
    content = {}

    def remember(*files, **values):
        content.update(values, files=files)
        return templates.fill_cpp_template(*files, **values)

    data, trained = train_on_recording(folder / "d.parquet", "gfx950_mi355x", "forward_bf16", 4, "gfx950_mi355x")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(header, "fill_cpp_template", remember)
        served = stage.serve_model(data, trained.model, SMALL_SERVING)
    path = folder / f"models/grouped_conv_forward_bf16_gfx950_mi355x/{model_files.SELECTOR}"
    path.parent.mkdir(parents=True)
    path.write_text(served.header)
    content["candidates"] = content["candidates"][:3]
    return (
        folder,
        served,
        content | {"own_margins": ["0x1p-1"] * 5, "few_channels": 16, "library": "cudnn 91900", "splits": []},
    )


@pytest.fixture(scope="module")
def filled(rendered):
    """The template as a function, its values for a small model, and the code of that header."""
    values = {name: value for name, value in rendered[2].items() if name != "files"}
    values |= {key: [] for key in ("shape", "leaves", "tree_sizes", "known", "feature_tables", "fixed")}
    template, folder = rendered[2]["files"]
    render = templates.cpp_environment(template.parent, folder).get_template(template.name).render
    return render, values, code_of(render(**values))[0]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.fixed_dictionaries(dict.fromkeys((*TEXTS, "kernel"), EVIL)))
def test_any_text_stays_a_string_or_a_comment(texts, filled):
    render, values, sound = filled
    (_, *row), *others = values["candidates"]
    code, strings = code_of(render(**values | texts | {"candidates": [(texts["kernel"], *row), *others]}))
    assert code == sound
    meanings = set(map(meaning, strings))
    for name in TEXTS:
        assert texts[name].encode("utf-8", "replace") in meanings, name


def meaning(string):
    """The text of a C++ string literal with simple and octal escapes."""
    parts = re.findall(r'\\([0-7]{3})|\\(["\\?])|([^"\\])', string[1:-1])
    return bytes(int(octal, 8) if octal else ord(simple or plain) for octal, simple, plain in parts)


@pytest.mark.parametrize("name", ["namespace", "content", "suffix"])
@pytest.mark.parametrize("evil", ["a {} inline int evil", "a;b", "a\nb", 'a"b', "a//b", "a\\", "a#b", "é"])
def test_a_name_that_is_none_is_refused(name, evil, rendered):
    content = {key: value for key, value in rendered[2].items() if key != "files"} | {name: evil}
    with pytest.raises(UserError, match="cannot be written into C"):
        templates.fill_cpp_template(*rendered[2]["files"], **content)


def test_a_header_with_hostile_texts_compiles_and_says_them(rendered, tmp_path):
    _, _, content = rendered
    evil = 'x"; inline const int evil = 1; //\\\n??/\n*/ "'
    values = {name: value for name, value in content.items() if name != "files"} | {"device": evil, "library": evil}
    text = templates.fill_cpp_template(*content["files"], **values | {"own_margins": None})
    (tmp_path / "selector.hpp").write_text(text)
    (tmp_path / "main.cpp").write_text(
        '#include "selector.hpp"\n#include <cstdio>\n'
        f"int evil = 2;\nint main() {{ std::fputs(tileseer::{content['namespace']}::device, stdout); }}\n"
    )
    for standard in ("c++17", "gnu++17"):
        command = ["g++", f"-std={standard}", "-trigraphs", "-fsyntax-only", "-Wno-trigraphs", "main.cpp"]
        subprocess.run(command, cwd=tmp_path, check=True)
    older = ["g++", "-std=c++14", "-fsyntax-only", "-x", "c++", "selector.hpp"]
    said = subprocess.run(older, cwd=tmp_path, capture_output=True, text=True, check=False).stderr
    assert said.count("error:") == 1 and "this header needs C++17: compile it with -std=c++17" in said


SIZES = st.one_of(
    st.integers(1, 4), st.sampled_from([2**k + d for k in range(4, 31) for d in (-1, 0)]), st.just(INT32_MAX)
)


@settings(max_examples=300, deadline=None)
@given(sizes=st.lists(SIZES, min_size=len(DIMS), max_size=len(DIMS)), unit=st.sets(st.integers(0, len(DIMS) - 1)))
def test_python_agrees_with_itself_on_what_is_too_large(sizes, unit):
    row = row_of(sizes, unit)
    try:
        Problem.from_dims("forward", "bf16", **dict(zip(DIMS, row, strict=True)))
        right = True
    except UserError:
        right = False
    for copies in (1, 2):
        try:
            checked_dims(np.array([row] * copies))
            assert right, row
        except UserError:
            assert not right, row


def row_of(sizes, unit):
    """A row of dimensions of which some are 1, and no pad."""
    least = [0 if name.startswith("pad") else 1 for name in DIMS]
    return [least[at] if at in unit else size for at, size in enumerate(sizes)]


def test_the_header_returns_nothing_for_what_python_refuses_as_too_large(rendered):
    folder, served, _ = rendered
    shapes = random_shapes(60)
    assert_cpp_picks_alike(folder, served.selector, shapes)
    draw = np.random.default_rng(0)
    large = shapes.astype(np.int64)
    columns = [DIMS.index(name) for name in ("N", "C", "K", "Hi", "Wi", "Y", "X", "pad_h")]
    for row in large:
        for column in draw.choice(columns, 3, replace=False):
            row[column] = draw.choice([2**15, 2**16, 2**24, 2**30, INT32_MAX])
    largest = {name: 0 if name.startswith("pad") else 1 for name in DIMS}
    largest |= dict.fromkeys(("N", "C", "K", "Hi", "Wi"), INT32_MAX)
    large = np.concatenate([large, [list(largest.values())]])
    rows, *_ = picks_of_cpp(folder, served.selector.spec, large, 1, 0)
    refused = 0
    for row, pick in zip(large.tolist(), rows, strict=True):
        try:
            Problem.from_dims("forward", "bf16", **dict(zip(DIMS, row, strict=True)))
        except UserError:
            refused += 1
            assert pick == NO_CANDIDATE, row
        else:
            assert pick == served.selector.select(np.array([row])).candidate[0]
    assert refused > 30
    with pytest.raises(UserError, match=r"problems, row 60: .* too large, since N Di Hi Wi is \d+, and kernels count"):
        served.selector.select(np.concatenate([shapes, large[-1:]]))
