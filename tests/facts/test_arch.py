"""The arch specification: reading, look-ups, the one form in which it is written, and every kind of bad input."""

import itertools
import json
import re

import pytest
from repository import CONFIG, SPECS

from tileseer.core import errors
from tileseer.core.errors import UserError
from tileseer.facts.arch import ArchSpecs, render_json
from tileseer.facts.operations import DTYPES
from tileseer.libraries.ck_tile import kernel

SOURCE = CONFIG / "arch_specs.json"
DELETED = object()


def changed(*path, to):
    """Return the source with the member at ``path``, keys and indexes, set ``to`` a value or ``DELETED``."""
    content = json.loads(SOURCE.read_text())
    above = content
    for step in path[:-1]:
        above = above[step]
    if to is DELETED:
        del above[path[-1]]
    else:
        above[path[-1]] = to
    return content


def load_text(text, tmp_path):
    path = tmp_path / "specs.json"
    path.write_text(text)
    return ArchSpecs.load(path)


@pytest.mark.parametrize(
    ("arch", "wave_size", "lds_kib", "waves"),
    [
        ("gfx90a", 64, 64, "141 221 411"),
        ("gfx950", 64, 160, "111 121 141 211 212 221 411 821 441"),
        ("gfx1250", 32, 320, "241 181 811 421 211 122 411 141 221"),
    ],
)
def test_facts_of_a_target(arch, wave_size, lds_kib, waves):
    info = SPECS.arch(arch)
    assert (info.wave_size, info.lds_bytes) == (wave_size, lds_kib * 1024)
    assert info.waves == tuple(tuple(map(int, wave)) for wave in waves.split())


@pytest.mark.parametrize(
    ("arch", "dtypes", "tiles"),
    [
        ("gfx90a", ("bf16", "bf16"), "32.32.8 16.16.16 32.32.16 16.16.32 4.64.16 64.4.16"),
        ("gfx942", ("fp32",), "16.16.4 16.16.8 16.16.16 32.32.4 32.32.8"),
        ("gfx942", ("fp8", "bf8"), "32.32.16 16.16.32 32.32.32"),
        ("gfx942", ("bf8", "fp8"), "32.32.16"),
        ("gfx1250", ("fp32",), ""),
    ],
)
def test_warp_tiles_keep_the_order_of_the_table(arch, dtypes, tiles):
    assert SPECS.warp_tiles(arch, *dtypes) == tuple(tuple(map(int, tile.split("."))) for tile in tiles.split())


def test_lds_of_a_pipeline(tmp_path):
    limits = {pipeline: SPECS.lds_limit(pipeline) for pipeline in SPECS.traits.pipelines}
    half = {"compv4", "compv6", "preshufflev1", "preshufflev2"}
    assert limits == {pipeline: 32768 if pipeline in half else 65536 for pipeline in limits}
    assert [SPECS.lds_budget(name, "gfx950") for name in ("mem", "basic_v1", "compv4")] == [163840, 163840, 81920]
    assert (SPECS.lds_budget("comp_async", "gfx942"), SPECS.lds_budget("wavelet", "gfx1250")) == (32768, 327680)
    # A budget is whole bytes.
    third = changed("lds", "budget_fraction", "mem", to=0.3)
    assert load_text(json.dumps(third), tmp_path).lds_budget("mem", "gfx942") == 19660


def test_interwave_is_legal_only_for_mem_and_the_basic_pipelines():
    traits = itertools.product(SPECS.traits.pipelines, SPECS.traits.epilogues, SPECS.traits.schedulers)
    excluded = {trait for trait in traits if SPECS.is_trait_excluded(*trait)}
    intrawave_only = ("basic_async_v1", "comp_async", "compv3", "compv4", "compv5", "compv6")
    assert excluded == set(itertools.product(intrawave_only, SPECS.traits.epilogues, ["interwave"]))


def test_names_in_any_letter_case():
    assert SPECS.warp_tiles("GFX942", "FP16", "Fp16") == SPECS.warp_tiles("gfx942", "fp16")
    assert SPECS.lds_budget("CompV4", "GFX950") == 81920
    assert SPECS.is_trait_excluded("COMPV3", "CShuffle", "Interwave")


@pytest.mark.parametrize(
    ("call", "arguments", "wrong", "listed"),
    [
        ("arch", ("gfx9999",), "gfx9999", "gfx942"),
        ("warp_tiles", ("gfx942", "fp16", "fp17"), "fp17", "fp16"),
        ("warp_tiles", ("gfx942", "fp16", "bf16"), "fp16 x bf16", "fp16 x fp16"),
        ("element_size", ("",), "''", "fp16"),
        ("accumulator", ("int4", "int4"), "int4 x int4", "int8 x int8"),
        ("lds_budget", ("compv9", "gfx942"), "compv9", "compv4"),
        ("is_trait_excluded", ("compv9", "cshuffle", "interwave"), "compv9", "compv4"),
        ("operator_limits", ("conv",), "conv", "conv_fwd"),
    ],
)
def test_an_unknown_name_lists_the_known_ones(call, arguments, wrong, listed):
    with pytest.raises(UserError, match=rf"{re.escape(wrong)}.*{re.escape(listed)}"):
        getattr(SPECS, call)(*arguments)


def test_the_vocabulary_of_kernels_is_known():
    assert set(kernel.PIPELINES) == {name for name in SPECS.traits.pipelines if not name.startswith("preshuffle")}
    assert set(kernel.EPILOGUES) == set(SPECS.traits.epilogues)
    assert set(kernel.SCHEDULERS) == set(SPECS.traits.schedulers)
    assert set(DTYPES) <= set(SPECS.dtypes)


GFX942 = ("archs", "gfx942")
FP16 = (*GFX942, "warp_tiles", "fp16_fp16_fp32")
MNK = "three positive integers [m, n, k]"
BAD_VALUES = [
    # what to change, to what, the path in the message, and what is said to be allowed
    ((*GFX942, "product"), "two\nlines", "archs.gfx942.product", "one line"),
    ((*GFX942, "wave_size"), 48, "archs.gfx942.wave_size", "32, 64"),
    ((*GFX942, "lds_kib"), 10**30, "archs.gfx942.lds_kib", "at most 2147483647"),
    ((*GFX942, "waves"), [], "archs.gfx942.waves", "at least one"),
    ((*GFX942, "waves"), {"m": 1}, "archs.gfx942.waves", "a list"),
    ((*GFX942, "waves", 2), [1, 4], "archs.gfx942.waves[2]", MNK),
    ((*GFX942, "waves", 2), [1, 1, 1], "archs.gfx942.waves[2]", "no repetition"),
    ((*FP16, 1), [16, 16, -16], "archs.gfx942.warp_tiles.fp16_fp16_fp32[1]", MNK),
    ((*GFX942, "preshuffle_warp_tiles"), None, "archs.gfx942.preshuffle_warp_tiles", "an object"),
    ((*GFX942, "wavesize"), 64, "archs.gfx942.wavesize", "is it wave_size?"),
    (("archs",), [], "archs", "an object"),
    (("gpus",), {}, "gpus", "dtypes, dtype_pairs"),
    (("dtypes", "fp16", "bits"), "16", "dtypes.fp16.bits", "positive integer"),
    (("dtypes", "fp16", "cpp_type"), "int; int", "dtypes.fp16.cpp_type", "C++ type name"),
    (("dtype_pairs", 1), ["fp16", "fp32"], "dtype_pairs[1]", "[A, B, accumulator]"),
    (("dtype_pairs", 1), ["fp32", "fp32", "fp16"], "dtype_pairs", "one accumulator"),
    (("families", "cdna3", "isa_lineage"), "CDNA", "families.cdna3.isa_lineage", "lower-case"),
    (("traits", "pipelines", 0), 7, "traits.pipelines[0]", "a name"),
    (("lds", "budget_fraction", "mem"), 1.5, "lds.budget_fraction.mem", "above 0 and at most 1"),
]  # fmt: skip
BAD_REFERENCES = [
    # what to change, to what, the path in the message, the name that nothing has, and what is said to be allowed
    ((*GFX942, "family"), "cdna9", "archs.gfx942.family", "cdna9", "cdna1, cdna2"),
    ((*GFX942, "warp_tiles", "fp17_fp17_fp32"), [[1, 1, 1]], "archs.gfx942.warp_tiles", "fp17_fp17_fp32", "bf16_bf16"),
    (("dtype_pairs", 1), ["fp16", "fp17", "fp32"], "dtype_pairs", "fp17", "bf16, bf8"),
    (("traits", "excluded", 0), ["compv9", "default", "interwave"], "traits.excluded", "compv9", "compv1, compv2"),
    (("traits", "preshuffle_pipelines", 0), "flat", "traits.preshuffle_pipelines", "flat", "preshufflev2"),
    (("lds", "limit_bytes", "compv9"), 65536, "lds.limit_bytes", "compv9", "compv1, compv2"),
]  # fmt: skip


def refusal(text, tmp_path):
    with pytest.raises(UserError) as caught:
        load_text(text, tmp_path)
    message, path = str(caught.value), str(tmp_path / "specs.json")
    assert message.startswith(path) and "\n" not in message
    return message.removeprefix(path)


@pytest.mark.parametrize(("where", "value", "path", "allowed"), BAD_VALUES)
def test_a_bad_value_is_refused_with_its_place(where, value, path, allowed, tmp_path):
    culprit = content = changed(*where, to=value)
    place, _, said = refusal(json.dumps(content), tmp_path).removeprefix(": ").partition(": ")
    for step in re.findall(r"\w+", path):
        culprit = culprit[int(step) if isinstance(culprit, list) else step]
    assert place == re.sub(r"\[(\d+)\]", r".\1", path)
    assert f" {errors.shown(culprit)}" in said
    assert allowed in said


@pytest.mark.parametrize(("where", "value", "path", "name", "allowed"), BAD_REFERENCES)
def test_a_name_that_no_table_has_is_refused_with_its_place(where, value, path, name, allowed, tmp_path):
    said = refusal(json.dumps(changed(*where, to=value)), tmp_path)
    assert said.startswith(f": {path}: should be one of ") and allowed in said and said.endswith(f"but it is {name!r}")


@pytest.mark.parametrize("path", ["operators", "archs.gfx942.family", "dtypes.fp16.bits", "lds.budget_fraction"])
def test_a_missing_key_is_named(path, tmp_path):
    said = refusal(json.dumps(changed(*path.split("."), to=DELETED)), tmp_path)
    assert said == f": {path}: this field is required"


def test_the_lds_tables_need_a_default(tmp_path):
    message = refusal(json.dumps(changed("lds", "limit_bytes", "default", to=DELETED)), tmp_path)
    assert "lds.limit_bytes" in message and "row 'default'" in message


def without_comments(value):
    if isinstance(value, dict):
        return {key: without_comments(item) for key, item in value.items() if not key.startswith("_")}
    return value


def test_white_space_comments_and_meaningless_order_do_not_reach_the_output(tmp_path):
    content = without_comments(json.loads(SOURCE.read_text()))
    shuffled = {key: content[key] for key in reversed(content)}
    shuffled["archs"] = {arch: content["archs"][arch] for arch in reversed(content["archs"])}
    for names in (shuffled["dtype_pairs"], *shuffled["traits"].values()):
        names.reverse()
    shuffled["archs"]["gfx942"]["_note"] = {"nothing": ["like", "the", "rest"]}
    for text in (json.dumps(shuffled), json.dumps(content, indent=7)):
        assert render_json(load_text(text, tmp_path)) == render_json(SPECS)


def test_the_written_table_is_the_whole_source_and_nothing_else():
    written, content = json.loads(render_json(SPECS)), json.loads(SOURCE.read_text())
    for part in (content := without_comments(content), written):
        part["dtype_pairs"].sort()
        for names in part["traits"].values():
            names.sort()
    assert written == content
