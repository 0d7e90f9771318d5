"""The named rule sets are those of the reference generator: counts, names, order, filter, command."""

import csv
import hashlib
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repository import CONFIG, ROOT, SPECS, edited

from tileseer.core.errors import UserError
from tileseer.facts.operations import DTYPES, TABLE_SETS, VARIANTS
from tileseer.libraries.ck_tile import api, flags, kernel, registry_key
from tileseer.libraries.ck_tile.depthwise import DepthwiseConfig
from tileseer.libraries.ck_tile.names import parse_kernel
from tileseer.libraries.ck_tile.upstream import reference_filter
from tileseer.libraries.ck_tile.upstream.named import Enumerator, RuleTables
from tileseer.libraries.ck_tile.upstream.reference_filter import ARCH_RULES, CONFIG_RULES, UNTAGGED_CONFIG_RULES
from tileseer.libraries.enumeration import ListedKernel
from tileseer.libraries.rules import broken_rules

DATA = ROOT / "tests/data"
TABLES = RuleTables.read_folder(CONFIG / "rule_sets")
API = api.read_api(CONFIG / "ck_api.yaml")
COUNTS = list(csv.DictReader((DATA / "reference_counts.csv").open()))
COUNTED = (
    "enumerated_configs", "enumerated_unique_names", "arch_filtered_configs", "arch_filtered_unique_names",
    "of_which_depthwise",
)  # fmt: skip
HASHES = list(csv.DictReader((DATA / "reference_name_hashes.csv").open()))
ARCHS = sorted({row["arch"] for row in COUNTS})


@pytest.fixture(scope="module")
def enumerator():
    return Enumerator(SPECS, TABLES)


def passed(items):
    return [item for item in items if not item.rule]


def test_the_reference_covers_every_set_and_cell_of_four_archs():
    assert {(row["arch"], row["rule_set"]) for row in COUNTS} == set(product(ARCHS, TABLE_SETS))
    assert len(COUNTS) == 496 and len(HASHES) == 216


@pytest.mark.parametrize("rule_set", TABLE_SETS)
@pytest.mark.parametrize("arch", ARCHS)
def test_counts_are_those_of_the_reference(enumerator, arch, rule_set):
    cells = [row for row in COUNTS if (row["arch"], row["rule_set"]) == (arch, rule_set)]
    assert len(cells) == 31
    for cell in cells:
        ndims = [int(ndim) for ndim in cell["ndim"].split("+")]
        items = enumerator.enumerate(
            rule_set,
            arch,
            VARIANTS if cell["variant"] == "all" else [cell["variant"]],
            ndims,
            DTYPES if cell["dtype"] == "all" else [cell["dtype"]],
        )
        counted = [len(each) for kept in (items, passed(items)) for each in (kept, {item.name for item in kept})]
        counted.append(sum(isinstance(item.kernel, DepthwiseConfig) for item in items))
        assert counted == [int(cell[column]) for column in COUNTED], cell


@pytest.mark.parametrize(("arch", "rule_set"), sorted({(row["arch"], row["rule_set"]) for row in HASHES}))
def test_names_are_those_of_the_reference(enumerator, arch, rule_set):
    rows = [row for row in HASHES if row["arch"] == arch and row["rule_set"] == rule_set]
    assert len(rows) == 54
    for row in rows:
        items = enumerator.enumerate(rule_set, arch, [row["variant"]], [int(row["ndim"])], [row["dtype"]])
        names = sorted({item.name for item in (passed(items) if row["column"] == "arch_filtered" else items)})
        assert len(names) == int(row["names"]), row
        assert hashlib.sha256("".join(f"{name}\n" for name in names).encode()).hexdigest() == row["sha256"], row


@pytest.mark.parametrize(
    ("arch", "rule_set", "expected"),
    [
        ("gfx908", "default", (372, 278)), ("gfx908", "full", (9936, 5352)),
        ("gfx908", "full-tests", (1982, 1070)), ("gfx908", "tiny", (35, 25)),
        ("gfx1250", "default", (288, 168)), ("gfx1250", "full", (15792, 8200)),
        ("gfx1250", "full-tests", (3154, 1632)), ("gfx1250", "tiny", (23, 11)),
    ],
)  # fmt: skip
def test_totals_of_the_other_archs(enumerator, arch, rule_set, expected):
    items = enumerator.enumerate(rule_set, arch, VARIANTS, [2, 3], DTYPES)
    assert (len(items), len(passed(items))) == expected


KERNEL = kernel.parse("grouped_conv_fwd_bf16_nhwgc_2d_compv3_cshuffle_intrawave_64x128x64_2x2x1_32x32x16")
"""Passes both stages on gfx950."""
SHALLOW = {"wave_m": 2, "wave_n": 4, "warp_tile_m": 16, "warp_tile_n": 16, "warp_tile_k": 16}


def broken(rules, kernel, arch="gfx950"):
    return broken_rules(rules, reference_filter.filter_parts([kernel], arch, SPECS))[0]


@pytest.mark.parametrize(
    ("rules", "rule", "change", "arch"),
    [
        (CONFIG_RULES, "trait_allowed", {"pipeline": "basic_async_v1", "scheduler": "interwave"}, "gfx950"),
        (CONFIG_RULES, "streamk_is_bwd_weight", {"streamk": "tree"}, "gfx950"),
        (CONFIG_RULES, "compv5_is_forward", {"pipeline": "compv5", "variant": "bwd_data"}, "gfx950"),
        (CONFIG_RULES, "vectors_one_or_even", {"vec_b": 3}, "gfx950"),
        (CONFIG_RULES, "waves_listed", {"wave_k": 2}, "gfx950"),
        (CONFIG_RULES, "wave32_instruction", SHALLOW, "gfx1201"),
        (CONFIG_RULES, "wave32_instruction", {**SHALLOW, "dtype": "fp32"}, "gfx1201"),
        (UNTAGGED_CONFIG_RULES, "", SHALLOW, "gfx1201"),
        (UNTAGGED_CONFIG_RULES, "wave32_instruction", {**SHALLOW, "tile_k": 8}, "gfx1201"),
        (UNTAGGED_CONFIG_RULES, "wave32_instruction", {"wave_m": 2, "wave_n": 4}, "gfx1201"),
        (CONFIG_RULES, "compv6_has_loads", {"pipeline": "compv6", "tile_k": 1}, "gfx950"),
        (ARCH_RULES, "tile_limits", {"tile_n": 8}, "gfx950"),
        (ARCH_RULES, "tile_covers_waves", {"tile_m": 32}, "gfx950"),
        (ARCH_RULES, "flat_waves_listed", {"wave_m": 2, "wave_n": 3, "tile_n": 192}, "gfx950"),
        (ARCH_RULES, "warp_tile_listed", {"warp_tile_k": 64}, "gfx950"),
        (ARCH_RULES, "backward_pipeline", {"variant": "bwd_data", "pipeline": "compv4"}, "gfx950"),
        (ARCH_RULES, "listed_trait_allowed", {"scheduler": "interwave"}, "gfx950"),
        (ARCH_RULES, "lds_limit", {"tile_k": 256}, "gfx950"),
        (ARCH_RULES, "tile_divides", {"tile_m": 96}, "gfx950"),
        # Quirks: one wave along k is assumed, the filter's table lacks a pipeline, a second buffer is not counted.
        (ARCH_RULES, "", {"wave_k": 2, "tile_k": 16}, "gfx950"),
        (ARCH_RULES, "", {"pipeline": "basic_async_v1", "scheduler": "interwave"}, "gfx950"),
        (ARCH_RULES, "", {"pipeline": "comp_async", "double_smem_buffer": True, "tile_k": 128}, "gfx950"),
    ],
)
def test_rules_of_the_reference(rules, rule, change, arch):
    assert broken(rules, KERNEL) == []
    found = broken(rules, replace(KERNEL, **change), arch)
    assert (found[0].name if found else "") == rule and all(reason for _, reason in found)


SIZE = st.integers(1, 300)


@given(st.builds(DepthwiseConfig, st.sampled_from(DTYPES), *[SIZE] * 10))
def test_depthwise_names_read_back(config):
    assert DepthwiseConfig.parse(config.name) == config


@pytest.mark.parametrize(
    "edit", [("_p1x1", "_p2x2"), ("nb8", "nb08"), ("ngchw", "nhwgc"), ("_2d", "_3d"), ("fp16", "int8"), ("nb8", "nb0")]
)
def test_other_depthwise_names_are_refused_where_they_break(edit):
    name = "grouped_conv_fwd_depthwise_fp16_ngchw_2d_8x8_f3_s1x1_p1x1_nb8_sub2x2_vec2_2"
    assert parse_kernel(name).name == name
    with pytest.raises(UserError, match="kernel name") as caught:
        parse_kernel(name.replace(*edit))
    if edit[1] == "nb0":
        assert "the batches (as _nb2) is expected, found '_nb0'" in str(caught.value)


def test_words_that_are_given_twice_count_once_and_an_unknown_arch_is_named(enumerator):
    once = enumerator.enumerate("tiny", "gfx950", ["forward"], [2], ["bf16"])
    assert enumerator.enumerate("tiny", "gfx950", ["forward"] * 2, [2, 2], ["bf16", "bf16"]) == once
    with pytest.raises(UserError, match="unknown arch 'gfx000'"):
        enumerator.enumerate("tiny", "gfx000", ["forward"], [2], ["bf16"])


@pytest.mark.parametrize(
    ("file", "edit", "told"),
    [
        ("full", lambda t: t["variants"]["forward"]["tiles"][0].update(tile="16x16"), "tiles.0.tile"),
        ("full", lambda t: t["variants"]["forward"]["tiles"][0].update(tile="16x0x64"), "write sizes as 16x64x64"),
        ("full", lambda t: t["variants"]["forward"]["tiles"][0]["half"].update(pipelines=["m"]), "'m': write PIPELINE"),
        ("default", lambda t: t["tiles"][0].update(not_with=["fast"]), "tiles.0.not_with.0"),
        ("builder", lambda t: t["pipelines"].update(v1="fast"), "pipelines.v1"),
    ],
)
def test_mistakes_in_the_tables_are_named(tmp_path, file, edit, told):
    for name in ("default", "full", "builder"):
        edited(CONFIG / f"rule_sets/{name}.yaml", tmp_path / f"{name}.yaml", edit if name == file else id)
    with pytest.raises(UserError) as caught:
        RuleTables.read_folder(tmp_path)
    assert told in str(caught.value) and f"{file}.yaml" in str(caught.value)


def test_no_two_kernels_share_a_registry_key(enumerator):
    items = enumerator.enumerate("full", "gfx950", VARIANTS, [2, 3], DTYPES)
    keys = {
        tuple((registry_key.depthwise_key if isinstance(k, DepthwiseConfig) else registry_key.gemm_key)(k, API).items())
        for k in (item.kernel.built_as for item in items)
    }
    assert len(keys) == len(items) == 14048


def test_depthwise_kernels_can_be_asked_for_alone_and_come_once(enumerator):
    alone = enumerator.enumerate("full", "gfx950", ["forward_depthwise"], [2, 3], ["fp16"])
    assert len(alone) == 20 and all(isinstance(item.kernel, DepthwiseConfig) for item in alone)
    both = enumerator.enumerate("full", "gfx950", ["forward_depthwise", "forward"], [2, 3], ["fp16"])
    assert {item.name for item in both} == {
        item.name for item in enumerator.enumerate("full", "gfx950", ["forward"], [2, 3], ["fp16"])
    }
    assert len(both) == len({item.name for item in both})
    assert enumerator.enumerate("default", "gfx950", ["forward_depthwise"], [2], ["fp16"]) == []


@pytest.mark.parametrize(
    ("arch", "rule_set", "flag", "expected"),
    [
        ("gfx950", "full", "half_zero_output", 816), ("gfx950", "full", "async_layout", 1064),
        ("gfx950", "full", "streamk_async_fp32", 128), ("gfx950", "full", "warp_tile_on_arch", 0),
        ("gfx90a", "full", "narrow_warp_tile", 3252), ("gfx950", "default", "warp_tile_on_arch", 104),
        ("gfx1201", "full", "warp_tile_on_arch", 6796),
        ("gfx950", "full", "one_channel", 510),
    ],
)  # fmt: skip
def test_kernels_known_to_be_wrong_are_flagged(enumerator, arch, rule_set, flag, expected):
    items = enumerator.enumerate(rule_set, arch, VARIANTS, [2, 3], DTYPES)
    reasons = [found.reason for item in items for found in item.flags if found.name == flag]
    assert len(reasons) == expected and all(reasons)


def test_flags_are_asked_for_by_name():
    (found,) = flags.flags_of([replace(KERNEL, pipeline="basic_async_v1", warp_tile_k=64)], "gfx950", SPECS)
    assert {flag.name for flag in found} >= {"async_layout", "warp_tile_on_arch"}
    built = ListedKernel(KERNEL, flags=tuple(found)).is_built
    assert ListedKernel(KERNEL).is_built(()) and not built(()) and not built(("async_layout",))
    assert built(("all",)) and built(tuple(flag.name for flag in found))
    with pytest.raises(UserError, match=r"unknown flag 'async'; use all or some of half_zero_output"):
        flags.check_flags(["async"])
