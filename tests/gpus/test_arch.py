"""The arch specification: reading, look-ups, both rendered forms, digests, and every kind of bad input."""

import importlib.util
import itertools
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileseer.config.operations import DTYPES
from tileseer.core import errors
from tileseer.core.errors import UserError
from tileseer.core.tables import StrictModel
from tileseer.gpus.arch import ArchSpecs, render_json
from tileseer.gpus.arch_render import render_python
from tileseer.kernels.ck_tile import kernel

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "config/arch_specs.json"
TEMPLATE = ROOT / "workflow/templates/arch_specs.py.j2"
SPECS = ArchSpecs.load(SOURCE)


def table():
    """Return the source as the standard reader sees it, comments included: to be changed by a test."""
    return json.loads(SOURCE.read_text())


def put(content, path, value):
    """Set the member at ``path``, a tuple of keys and indexes."""
    *above, last = path
    for step in above:
        content = content[step]
    content[last] = value


def load_text(text):
    return ArchSpecs.parse(text, "specs.json")


def load_module(text, folder, name="rendered_arch_specs"):
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    return load_module(render_python(SPECS, TEMPLATE), tmp_path_factory.mktemp("rendered"))


# Look-ups -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arch", "family", "target_family", "lineage", "wave_size", "lds_kib", "waves"),
    [
        ("gfx908", "cdna1", "gfx9", "cdna", 64, 64, "141 221 411"),
        ("gfx90a", "cdna2", "gfx9", "cdna", 64, 64, "141 221 411"),
        ("gfx942", "cdna3", "gfx9", "cdna", 64, 64, "111 121 141 211 212 221 411"),
        ("gfx950", "cdna4", "gfx9", "cdna", 64, 160, "111 121 141 211 212 221 411 821 441"),
        ("gfx1100", "rdna3", "gfx11", "rdna", 32, 64, "241 181 811 421"),
        ("gfx1200", "rdna4", "gfx12", "rdna", 32, 64, "241 181 811 421"),
        ("gfx1201", "rdna4", "gfx12", "rdna", 32, 64, "241 181 811 421"),
        ("gfx1250", "cdna5", "gfx125", "rdna", 32, 320, "241 181 811 421 211 122 411 141 221"),
    ],
)
def test_targets(module, arch, family, target_family, lineage, wave_size, lds_kib, waves):
    assert module.family(arch) == SPECS.arch(arch).family == family
    assert module.target_family(arch) == target_family
    assert module.isa_lineage(arch) == lineage
    assert module.wave_size(arch) == SPECS.arch(arch).wave_size == wave_size
    assert module.lds_bytes(arch) == SPECS.arch(arch).lds_bytes == lds_kib * 1024
    assert module.waves(arch) == SPECS.arch(arch).waves == tuple(tuple(map(int, wave)) for wave in waves.split())


@pytest.mark.parametrize(
    ("arch", "dtypes", "tiles"),
    [
        ("gfx908", ("fp16",), "32.32.8 16.16.16 32.32.16 16.16.32"),
        ("gfx90a", ("bf16", "bf16"), "32.32.8 16.16.16 32.32.16 16.16.32 4.64.16 64.4.16"),
        ("gfx942", ("fp32",), "16.16.4 16.16.8 16.16.16 32.32.4 32.32.8"),
        ("gfx942", ("fp8", "bf8"), "32.32.16 16.16.32 32.32.32"),
        ("gfx942", ("bf8", "fp8"), "32.32.16"),
        ("gfx950", ("pk_fp4",), "16.16.128"),
        ("gfx950", ("int8",), "32.32.16 16.16.32"),
        ("gfx1201", ("bf8", "fp8"), "16.16.16"),
        ("gfx1250", ("fp16",), "16.16.32"),
        ("gfx1250", ("fp32",), ""),
        ("gfx1100", ("fp32",), ""),
    ],
)
def test_warp_tiles_keep_the_order_of_the_table(arch, dtypes, tiles):
    assert SPECS.warp_tiles(arch, *dtypes) == tuple(tuple(map(int, tile.split("."))) for tile in tiles.split())


def test_preshuffle_tables(module):
    assert module.preshuffle_warp_tiles("gfx942", "int8") == ((16, 16, 32), (32, 32, 16))
    assert module.preshuffle_warp_tiles("gfx950", "fp16")[-2:] == ((32, 32, 32), (16, 16, 64))
    assert module.preshuffle_warp_tiles("gfx908", "fp16") == ()
    assert [pipeline for pipeline in SPECS.traits.pipelines if module.is_preshuffle(pipeline)] == ["preshufflev2"]


def test_dtypes(module):
    sizes = {"fp64": 8, "fp32": 4, "int32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "bf8": 1, "int8": 1, "int4": 0.5}
    assert {dtype: SPECS.element_size(dtype) for dtype in SPECS.dtypes} == {**sizes, "pk_fp4": 0.5}
    assert module.dtype_info("bf16").cpp_type == "ck_tile::bf16_t"
    assert len(module.valid_dtype_combos()) == 9
    assert {SPECS.accumulator(*pair) for pair in module.valid_dtype_combos() if pair != ("int8", "int8")} == {"fp32"}
    assert SPECS.accumulator("int8", "int8") == "int32"


def test_lds_limits_of_june(module):
    limits = {pipeline: SPECS.lds_limit(pipeline) for pipeline in SPECS.traits.pipelines}
    half = {"compv4", "compv6", "preshufflev1", "preshufflev2"}
    assert limits == {pipeline: 32768 if pipeline in half else 65536 for pipeline in limits}
    assert {module.lds_limit("mem", arch) for arch in SPECS.archs} == {65536}


def test_the_rendered_module_follows_a_changed_table(tmp_path):
    content = table()
    product = 'quote " backslash \\ accent é \U0001f600 }}'
    content["archs"]["gfx942"] |= {"lds_kib": 48, "product": product, "waves": [[4, 1, 1], [1, 4, 1]]}
    rendered = load_module(render_python(load_text(json.dumps(content)), TEMPLATE), tmp_path)
    assert (rendered.ARCHS["gfx942"].product, rendered.waves("gfx942")) == (product, ((4, 1, 1), (1, 4, 1)))
    # The limit of LDS is at most what the arch has.
    assert (rendered.lds_limit("mem", "gfx942"), rendered.lds_limit("mem", "gfx950")) == (48 * 1024, 65536)


def test_lds_budget():
    budgets = [SPECS.lds_budget(name, "gfx950") for name in ("mem", "basic_v1", "compv4")]
    assert budgets == [163840, 163840, 81920]
    assert (SPECS.lds_budget("comp_async", "gfx942"), SPECS.lds_budget("wavelet", "gfx1250")) == (32768, 327680)


def test_lds_budget_is_whole_bytes():
    content = table()
    content["lds"]["budget_fraction"]["mem"] = 0.3
    assert load_text(json.dumps(content)).lds_budget("mem", "gfx942") == 19660


def test_interwave_is_legal_only_for_mem_and_the_basic_pipelines():
    traits = itertools.product(SPECS.traits.pipelines, SPECS.traits.epilogues, SPECS.traits.schedulers)
    excluded = {trait for trait in traits if SPECS.is_trait_excluded(*trait)}
    intrawave_only = ("basic_async_v1", "comp_async", "compv3", "compv4", "compv5", "compv6")
    assert excluded == set(itertools.product(intrawave_only, SPECS.traits.epilogues, ["interwave"]))


def test_operator_limits():
    assert plain(SPECS.operator_limits("conv_fwd")) == ((1, 16, 16), (1, 16, 16))
    assert plain(SPECS.operator_limits("conv_bwd_weight")) == ((16, 16, 1), (16, 16, 1))
    assert plain(SPECS.operator_limits("gemm_preshuffle")) == ((64, 64, 32), (32, 32, 16))


def test_names_in_any_letter_case():
    assert SPECS.warp_tiles("GFX942", "FP16", "Fp16") == SPECS.warp_tiles("gfx942", "fp16")
    assert SPECS.lds_budget("CompV4", "GFX950") == 81920
    assert SPECS.is_trait_excluded("COMPV3", "CShuffle", "Interwave")


ARCH_CALLS = ["family", "target_family", "isa_lineage", "wave_size", "lds_bytes", "waves"]
OF_THE_MODULE = [
    *((call, ("gfx9999",), "gfx9999", "gfx942") for call in ARCH_CALLS),
    ("preshuffle_warp_tiles", ("gfx9999", "fp16"), "gfx9999", "gfx942"),
    ("dtype_info", ("half",), "half", "fp16"),
    ("lds_limit", ("mem", "gfx9999"), "gfx9999", "gfx942"),
    ("is_preshuffle", ("compv9",), "compv9", "preshufflev2"),
]
UNKNOWN = [
    ("arch", ("gfx9999",), "gfx9999", "gfx942"),
    ("warp_tiles", ("gfx9999", "fp16"), "gfx9999", "gfx942"),
    ("warp_tiles", ("gfx942", "fp17"), "fp17", "fp16"),
    ("warp_tiles", ("gfx942", "fp16", "fp17"), "fp17", "fp16"),
    ("warp_tiles", ("gfx942", "fp16", "bf16"), "fp16 x bf16", "fp16 x fp16"),
    ("element_size", ("",), "''", "fp16"),
    ("accumulator", ("int4", "int4"), "int4 x int4", "int8 x int8"),
    ("lds_limit", ("compv9",), "compv9", "compv4"),
    ("lds_limit", ("default",), "default", "compv4"),
    ("lds_budget", ("compv9", "gfx942"), "compv9", "compv4"),
    ("lds_budget", ("mem", "gfx9999"), "gfx9999", "gfx942"),
    ("is_trait_excluded", ("compv9", "cshuffle", "interwave"), "compv9", "compv4"),
    ("is_trait_excluded", ("compv3", "tdm", "interwave"), "tdm", "cshuffle"),
    ("is_trait_excluded", ("compv3", "cshuffle", "auto"), "auto", "intrawave"),
    ("operator_limits", ("conv",), "conv", "conv_fwd"),
]


@pytest.mark.parametrize(("call", "arguments", "wrong", "listed"), UNKNOWN)
def test_an_unknown_name_lists_the_known_ones(call, arguments, wrong, listed):
    with pytest.raises(UserError, match=rf"{re.escape(wrong)}.*{re.escape(listed)}"):
        getattr(SPECS, call)(*arguments)


def test_the_vocabulary_of_kernels_is_known():
    assert set(kernel.PIPELINES) == {name for name in SPECS.traits.pipelines if not name.startswith("preshuffle")}
    assert set(kernel.EPILOGUES) == set(SPECS.traits.epilogues)
    assert set(kernel.SCHEDULERS) == set(SPECS.traits.schedulers)
    assert set(DTYPES) <= set(SPECS.dtypes)


# Bad input ------------------------------------------------------------------------------------------------------------

GFX942 = ("archs", "gfx942")
FP16 = (*GFX942, "warp_tiles", "fp16_fp16_fp32")
MNK = "three positive integers [m, n, k]"
BAD_VALUES = [
    # what to change, to what, the path in the message, and what is said to be allowed
    ((*GFX942, "product"), "two\nlines", "archs.gfx942.product", "one line"),
    ((*GFX942, "wave_size"), 48, "archs.gfx942.wave_size", "32, 64"),
    ((*GFX942, "wave_size"), True, "archs.gfx942.wave_size", "positive integer"),
    ((*GFX942, "lds_kib"), 0, "archs.gfx942.lds_kib", "positive integer"),
    ((*GFX942, "lds_kib"), 10**30, "archs.gfx942.lds_kib", "at most 2147483647"),
    ((*GFX942, "waves"), [], "archs.gfx942.waves", "at least one"),
    ((*GFX942, "waves"), {"m": 1}, "archs.gfx942.waves", "a list"),
    ((*GFX942, "waves", 2), [1, 4], "archs.gfx942.waves[2]", MNK),
    ((*GFX942, "waves", 2), [1, 4, 1.0], "archs.gfx942.waves[2]", MNK),
    ((*GFX942, "waves", 2), [1, 1, 1], "archs.gfx942.waves[2]", "no repetition"),
    ((*FP16, 1), [16, 16, -16], "archs.gfx942.warp_tiles.fp16_fp16_fp32[1]", MNK),
    ((*GFX942, "preshuffle_warp_tiles"), None, "archs.gfx942.preshuffle_warp_tiles", "an object"),
    ((*GFX942, "wavesize"), 64, "archs.gfx942.wavesize", "family, product, wave_size"),
    (("archs",), [], "archs", "an object"),
    (("gpus",), {}, "gpus", "dtypes, dtype_pairs"),
    (("dtypes", "fp16", "bits"), "16", "dtypes.fp16.bits", "positive integer"),
    (("dtypes", "fp16", "cpp_type"), "int; int", "dtypes.fp16.cpp_type", "C++ type name"),
    (("dtype_pairs", 1), ["fp16", "fp32"], "dtype_pairs[1]", "[A, B, accumulator]"),
    (("dtype_pairs", 1), ["fp32", "fp32", "fp16"], "dtype_pairs", "one accumulator"),
    (("families", "cdna3", "isa_lineage"), "CDNA", "families.cdna3.isa_lineage", "lower-case"),
    (("traits", "pipelines", 0), 7, "traits.pipelines[0]", "a name"),
    (("lds", "limit_bytes", "mem"), 0, "lds.limit_bytes.mem", "positive integer"),
    (("lds", "budget_fraction", "mem"), 1.5, "lds.budget_fraction.mem", "above 0 and at most 1"),
    (("lds", "budget_fraction", "mem"), float("nan"), "lds.budget_fraction.mem", "above 0 and at most 1"),
    (("operators", "conv_fwd", "min_tile"), [1, 16], "operators.conv_fwd.min_tile", MNK),
]  # fmt: skip
BAD_REFERENCES = [
    # what to change, to what, the path in the message, the name that nothing has, and what is said to be allowed
    ((*GFX942, "family"), "cdna9", "archs.gfx942.family", "cdna9", "cdna1, cdna2"),
    ((*GFX942, "warp_tiles", "fp17_fp17_fp32"), [[1, 1, 1]], "archs.gfx942.warp_tiles", "fp17_fp17_fp32", "bf16_bf16"),
    (("dtype_pairs", 1), ["fp16", "fp17", "fp32"], "dtype_pairs", "fp17", "bf16, bf8"),
    (("traits", "excluded", 0), ["compv9", "default", "interwave"], "traits.excluded", "compv9", "compv1, compv2"),
    (("traits", "excluded", 0), ["mem", "default", "auto"], "traits.excluded", "auto", "interwave, intrawave"),
    (("traits", "preshuffle_pipelines", 0), "flat", "traits.preshuffle_pipelines", "flat", "preshufflev2"),
    (("lds", "limit_bytes", "compv9"), 65536, "lds.limit_bytes", "compv9", "compv1, compv2"),
]  # fmt: skip


def refusal(text, tmp_path):
    path = tmp_path / "specs.json"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        ArchSpecs.load(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message.removeprefix(str(path))


@pytest.mark.parametrize(("where", "value", "path", "allowed"), BAD_VALUES)
def test_a_bad_value_is_refused_with_its_place(where, value, path, allowed, tmp_path):
    content = table()
    put(content, where, value)
    place, _, said = refusal(json.dumps(content), tmp_path).removeprefix(": ").partition(": ")
    culprit = content
    for step in re.findall(r"\w+", path):
        culprit = culprit[int(step) if isinstance(culprit, list) else step]
    assert place == re.sub(r"\[(\d+)\]", r".\1", path)
    assert f" {errors.shown(culprit)}" in said
    assert allowed in said


@pytest.mark.parametrize(("where", "value", "path", "name", "allowed"), BAD_REFERENCES)
def test_a_name_that_no_table_has_is_refused_with_its_place(where, value, path, name, allowed, tmp_path):
    content = table()
    put(content, where, value)
    said = refusal(json.dumps(content), tmp_path)
    assert said.startswith(f": {path}: should be one of ") and allowed in said and said.endswith(f"but it is {name!r}")


BAD_NAMES = [("GFX942", '["GFX942"]'), ("gfx 9", '["gfx 9"]'), ("g" * 25, "g" * 25), ("9gfx", "9gfx"), ("", '[""]')]


@pytest.mark.parametrize(("name", "shown"), BAD_NAMES)
def test_a_bad_arch_name_is_refused(name, shown, tmp_path):
    content = table()
    content["archs"][name] = content["archs"]["gfx942"]
    message = refusal(json.dumps(content), tmp_path)
    assert "lower-case" in message
    assert shown.strip('[]"') in message


@pytest.mark.parametrize(
    ("where", "path"),
    [
        (("operators",), "operators"),
        ((*GFX942, "family"), "archs.gfx942.family"),
        ((*GFX942, "preshuffle_warp_tiles"), "archs.gfx942.preshuffle_warp_tiles"),
        (("dtypes", "fp16", "bits"), "dtypes.fp16.bits"),
        (("lds", "budget_fraction"), "lds.budget_fraction"),
    ],
)
def test_a_missing_key_is_named(where, path, tmp_path):
    content = table()
    above = content
    for step in where[:-1]:
        above = above[step]
    del above[where[-1]]
    assert refusal(json.dumps(content), tmp_path) == f": {path}: this field is required"


def test_the_lds_tables_need_a_default(tmp_path):
    content = table()
    del content["lds"]["limit_bytes"]["default"]
    assert "lds.limit_bytes" in (message := refusal(json.dumps(content), tmp_path))
    assert "row 'default'" in message


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ('"gfx90a": {', '"gfx908": {', "archs.gfx908"),
        ('"product": "AMD Instinct MI100"', '"family": "cdna1"', "archs.gfx908.family"),
        ('"mem": 65536', '"compv1": 65536', "lds.limit_bytes.compv1"),
        ('"fp64": {', '"fp32": {', "dtypes.fp32"),
        ('"_dtype_pairs": ', '"_comment": ', "_comment"),
    ],
)
def test_a_key_that_stands_twice_is_refused(old, new, path, tmp_path):
    text = SOURCE.read_text()
    assert old in text
    message = refusal(text.replace(old, new, 1), tmp_path)
    assert message.startswith(f": {path}: ")
    assert "written twice" in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{\n  "archs": {,\n', ":2:13: not valid JSON"),
        ("", ":1:1: not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"archs": ' + "9" * 5000 + "}", "a number is too long"),
        ("[]", "the whole file: should be an object, but it is []"),
        ('"\\ud800"', "the whole file: should be an object, but it is '\\ud800'"),
    ],
)
def test_broken_json_is_refused(text, said, tmp_path):
    assert said in refusal(text, tmp_path)


def test_unreadable_files_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.json: cannot be read"):
        ArchSpecs.load(tmp_path / "nowhere.json")
    with pytest.raises(UserError, match="cannot be read"):
        ArchSpecs.load(tmp_path)
    latin = tmp_path / "latin.json"
    latin.write_bytes(b'{"_comment": "caf\xe9"}')
    with pytest.raises(UserError, match=r"latin\.json: byte 17 is not UTF-8"):
        ArchSpecs.load(latin)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["gfx942", "fp16"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def loads_or_explains(text):
    try:
        specs = load_text(text)
    except UserError as error:
        assert str(error).startswith("specs.json")
        return
    assert render_json(load_text(render_json(specs))) == render_json(specs)
    compile(render_python(specs, TEMPLATE), "rendered", "exec")


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), action=st.sampled_from(["replace", "delete", "rename"]), value=JSON_VALUES)
def test_any_change_of_the_tree_loads_or_is_a_user_error(seed, action, value):
    content = table()
    choose = random.Random(seed)
    node = content
    while True:
        step = choose.choice(list(node) if isinstance(node, dict) else range(len(node)))
        if not isinstance(node[step], list | dict) or not node[step] or choose.random() < 0.25:
            break
        node = node[step]
    if action == "delete":
        del node[step]
    elif action == "rename" and isinstance(node, dict):
        node[json.dumps(value)[:40].strip('"')] = node.pop(step)
    else:
        node[step] = value
    loads_or_explains(json.dumps(content))


@settings(max_examples=100, deadline=None)
@given(position=st.integers(0, 12_000), length=st.integers(0, 40), inserted=st.text(max_size=6))
def test_any_change_of_the_text_loads_or_is_a_user_error(position, length, inserted):
    text = SOURCE.read_text()
    loads_or_explains(text[:position] + inserted + text[position + length :])


# Rendered forms -------------------------------------------------------------------------------------------------------


def without_comments(value):
    if isinstance(value, dict):
        return {key: without_comments(item) for key, item in value.items() if not key.startswith("_")}
    return value


def test_white_space_comments_and_meaningless_order_do_not_reach_the_outputs():
    content = without_comments(table())
    shuffled = {key: content[key] for key in reversed(content)}
    shuffled["archs"] = {arch: content["archs"][arch] for arch in reversed(content["archs"])}
    for names in (shuffled["dtype_pairs"], *shuffled["traits"].values()):
        names.reverse()
    shuffled["archs"]["gfx942"]["_note"] = {"nothing": ["like", "the", "rest"]}
    for text in (json.dumps(shuffled), json.dumps(content, indent=7)):
        specs = load_text(text)
        assert render_json(specs) == render_json(SPECS)
        assert render_python(specs, TEMPLATE) == render_python(SPECS, TEMPLATE)


def plain(value):
    """Return models, named tuples and tuples as plain tuples, for comparison."""
    if isinstance(value, StrictModel):
        value = tuple(item for _, item in value)
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def every_call():
    """Yield each look-up with each combination of known names."""
    archs, dtypes, traits = tuple(SPECS.archs), tuple(SPECS.dtypes), SPECS.traits
    pairs = [(a, b) for a, b, _ in SPECS.dtype_pairs]
    yield from (("warp_tiles", (arch, *pair)) for arch in archs for pair in pairs)
    yield from (("warp_tiles", (arch, dtype)) for arch in archs for dtype in DTYPES)
    yield from (("element_size", (dtype,)) for dtype in dtypes)
    yield from (("accumulator", pair) for pair in pairs)
    yield from (("lds_budget", pair) for pair in itertools.product(traits.pipelines, archs))
    yield from (("lds_limit", (pipeline,)) for pipeline in traits.pipelines)
    names = itertools.product(traits.pipelines, traits.epilogues, traits.schedulers)
    yield from (("is_trait_excluded", trait) for trait in names)
    yield from (("operator_limits", (operator,)) for operator in SPECS.operators)


def test_the_rendered_module_agrees_with_the_table(module):
    calls = list(every_call())
    for call, arguments in calls:
        assert plain(getattr(module, call)(*arguments)) == plain(getattr(SPECS, call)(*arguments)), (call, arguments)
    public = {name for name in vars(ArchSpecs) if not name.startswith("_") and callable(getattr(SPECS, name))}
    assert {call for call, _ in calls} == public - {"load", "parse", "arch", "model_post_init"}
    for arch, info in SPECS.archs.items():
        assert {name: plain(value) for name, value in module.ARCHS[arch]._asdict().items()} == dict(info)
        for a, b, accumulator in SPECS.dtype_pairs:
            tiles = info.preshuffle_warp_tiles.get(f"{a}_{b}_{accumulator}", ())
            assert module.preshuffle_warp_tiles(arch, a, b) == tiles
    for dtype, info in SPECS.dtypes.items():
        assert plain(module.dtype_info(dtype)) == plain(info)


@pytest.mark.parametrize(("call", "arguments", "wrong", "listed"), [*UNKNOWN[1:], *OF_THE_MODULE])
def test_the_rendered_module_refuses_unknown_names(module, call, arguments, wrong, listed):
    with pytest.raises(ValueError, match=rf"{re.escape(wrong)}.*{re.escape(listed)}"):
        getattr(module, call)(*arguments)


def test_the_rendered_module_is_clean_and_stands_alone(tmp_path):
    path = tmp_path / "arch_specs.py"
    path.write_text(render_python(SPECS, TEMPLATE))
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        done = subprocess.run(
            [*ruff, *command, "--config", ROOT / "pyproject.toml", path], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
    alone = "import arch_specs; print(arch_specs.wave_size('gfx950'))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", alone], cwd=tmp_path, env={"PYTHONPATH": "."}, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("64\n", "")


def test_a_broken_or_missing_template_is_refused(tmp_path):
    (tmp_path / "broken.j2").write_text("{{ specs.nothing }}")
    for name, reason in (("broken", "cannot be filled in"), ("none", "cannot be read")):
        with pytest.raises(UserError, match=rf"{name}\.j2.*{reason}"):
            render_python(SPECS, tmp_path / f"{name}.j2")


def test_the_script_writes_both_forms(tmp_path):
    out_json, out_python = tmp_path / "new/arch_specs.json", tmp_path / "new/arch_specs.py"
    script = [sys.executable, ROOT / "workflow/scripts/arch_specs.py", "--source", SOURCE, "--template", TEMPLATE]
    subprocess.run([*script, "--json", out_json, "--python", out_python], check=True)
    assert out_json.read_text() == render_json(SPECS) and out_python.read_text() == render_python(SPECS, TEMPLATE)


def test_the_table_in_memory_is_the_source():
    """Nothing is lost or added between the file and the model."""
    content = without_comments(table())
    model = SPECS.model_dump(mode="json")
    for part in (content, model):
        part["dtype_pairs"].sort()
        for names in part["traits"].values():
            names.sort()
    assert model == content
