from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileseer.core.errors import UserError
from tileseer.core.row_filter import parse_filter, vocabulary
from tileseer.libraries.ck_tile.kernel import PIPELINES, KernelConfig

FIELDS = vocabulary(KernelConfig, KernelConfig.choices)
ROW = asdict(
    KernelConfig("forward", "bf16", "nhwgc", 2, "mem", "cshuffle", "intrawave", 128, 64, 32, 2, 2, 1, 32, 32, 16)
)


def keeps(text, **changed):
    return parse_filter(text, FIELDS, "here").keeps(ROW | changed)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("tile_m >= 64 and pipeline in (mem, compv3) and not two_stage", True),
        ("tile_m >= 64 and pipeline not in (mem, compv3)", False),
        ("64 <= tile_n < tile_m <= 128", True),
        ("tile_m * tile_n // (wave_m * wave_n) == 2048", True),
        ("pipeline == mem or tile_m == 1", True),
        ("  dtype == bf16  ", True),
    ],
)
def test_what_is_kept(text, kept):
    assert keeps(text) is kept


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("pipelin == mem", 1, "there is no field or word pipelin (do you mean pipeline?); they are variant, dtype"),
        ("tile_m > 1 and pipeline == compv9", 28, "there is no field or word compv9"),
        ("  tile_m == tile_q", 13, "there is no field or word tile_q"),
        ("tile_m in 32", 1, "write brackets and a comma after in: (32,)"),
        ("tile_m >= ", 10, "this is no expression"),
        ("tile_m / 2 == 1", 1, "only fields, whole numbers"),
        ("pipeline == 'mem'", 13, "words need no quotes"),
        ("tile_m.real == 1", 7, "'.' has no meaning here"),
        ("open(tile_m)", 1, "only fields, whole numbers"),
        ("mem if two_stage else 1", 1, "only fields, whole numbers"),
        ("tile_m ** 2 == 1", 1, "only fields, whole numbers"),
        ("1 == 1or two_stage", None, "this is no expression"),
        ("", None, "this is no expression"),
        ("tile_m == 1\nor two_stage", 12, "has no meaning here"),
        ("tile_m == 9" + "9" * 3000, 2001, "2000 are the most"),
        ("(" * 300 + "two_stage" + ")" * 300, None, "this is no expression"),
    ],
)
def test_a_wrong_expression_points_at_the_character(text, place, reason):
    with pytest.raises(UserError) as caught:
        parse_filter(text, FIELDS, "configs.filter")
    message = str(caught.value)
    assert message.startswith("configs.filter: ")
    assert reason in message
    assert place is None or f", character {place}: " in message
    assert len(message) < 1000


def test_a_row_without_a_field_that_is_read_is_not_kept():
    assert not parse_filter("not two_stage", FIELDS, "here").keeps({"tile_m": 64})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("pipeline + 1 == 2", "pipeline is no number"),
        ("pipeline*999999999 == mem", "one is a number"),
        ("-pipeline == mem", "one is a number"),
        ("tile_m in (64,)*99999999999", "write brackets"),
        ("(tile_m,)*9 == 1", "is no number"),
        ("tile_m == (64, 128)", "a list in brackets is read only after in"),
        ("(1, 2) in (tile_m, 2)", "a list in brackets is read only after in"),
        ("tile_m in ((64, 128), 1)", "brackets inside"),
        ("pipeline < mem", "words are equal or not"),
        ("pipeline < tile_m", "one is a number, the other a word"),
        ("tile_m == mem", "one is a number, the other a word"),
        ("pipeline in (bf16, mem)", "pipeline is never bf16; it is one of"),
    ],
)
def test_a_word_is_compared_with_its_field_alone(text, reason):
    with pytest.raises(UserError, match=rf"here: .*{reason}"):
        keeps(text)


SIGNS = st.sampled_from(["+", "-", "*", "//", "%", "==", "<", "in", "not in", "and"])
VALUES = st.sampled_from(["tile_m", "N", "pipeline", "mem", "two_stage", "0", "99999999999", "(", ",", "(tile_m,)"])
TERMS = st.deferred(
    lambda: (
        VALUES
        | st.tuples(TERMS, SIGNS, TERMS).map(" ".join)
        | st.sampled_from(["({})", "({},)"]).flatmap(lambda form: TERMS.map(form.format))
    )
)


@given(text=TERMS)
def test_any_expression_is_evaluated_at_once_or_refused(text):
    try:
        assert keeps(text) in (True, False)
    except UserError as error:
        assert str(error).count("\n") == 0 and len(str(error)) < 1500


def test_division_by_zero_names_the_row():
    with pytest.raises(UserError, match=r"it divides by zero for \{'tile_m': 0"):
        parse_filter("1 % tile_m == 0", FIELDS, "here").keeps({"tile_m": 0})


def joined(word, parts):
    return "(" + f" {word} ".join(parts) + ")"


def binary(sign, left, right):
    return f"({left} {sign} {right})"


def among(value, choices, negated):
    return f"({value} {'not in' if negated else 'in'} ({''.join(f'{choice}, ' for choice in choices)}))"


numbers = st.integers(-99, 2**40).map(str)
values = st.recursive(
    numbers | st.sampled_from(("tile_m", "tile_n", "ndim")),
    lambda inner: st.builds(binary, st.sampled_from(("+", "-", "*", "%", "//")), inner, inner),
    max_leaves=4,
)
words = st.sampled_from(PIPELINES)
comparisons = (
    st.builds(binary, st.sampled_from(("==", "!=", "<", "<=", ">", ">=")), values, values)
    | st.builds(binary, st.sampled_from(("==", "!=")), st.just("pipeline"), words)
    | st.builds(among, values, st.lists(numbers, min_size=1, max_size=3), st.booleans())
    | st.builds(among, st.just("pipeline"), st.lists(words, min_size=1, max_size=3), st.booleans())
    | st.sampled_from(("two_stage", "pad_m"))
)
conditions = st.recursive(
    comparisons,
    lambda inner: (
        inner.map("(not {})".format)
        | st.builds(joined, st.sampled_from(("and", "or")), st.lists(inner, min_size=2, max_size=3))
    ),
    max_leaves=6,
)


@given(conditions)
def test_the_result_is_that_of_the_same_words_in_python(condition):
    """Python's own meaning of the text is the specification; here, in a test, its words are safe to evaluate."""
    names = {word: word for word in PIPELINES}
    try:
        expected = bool(eval(condition, {"__builtins__": {}}, ROW | names))
    except ZeroDivisionError:
        with pytest.raises(UserError, match="divides by zero"):
            parse_filter(condition, FIELDS, "here").keeps(ROW)
        return
    assert parse_filter(condition, FIELDS, "here").keeps(ROW) is expected


SPACED = (" and ", " or ", " not ", " in ")
pieces = st.sampled_from([*FIELDS, *PIPELINES, *"()<>=!+-*/%, 019_", *SPACED, "==", "lambda", "if"])


@given(st.lists(pieces, max_size=25).map("".join) | st.text(max_size=40))
def test_junk_is_understood_or_refused_with_a_place(text):
    try:
        understood = parse_filter(text, FIELDS, "here")
    except UserError as error:
        assert ", character " in str(error)
        return
    assert parse_filter(understood.text, FIELDS, "here") == understood
    try:
        assert isinstance(understood.keeps(ROW), bool)
    except UserError as error:
        assert "divides by zero" in str(error) or "no numbers" in str(error)
