import pytest
from kernel_samples import a_kernel
from repository import CONFIG, SPECS, edited

from tileseer.core.errors import UserError
from tileseer.facts.inputs import ConfigsSettings
from tileseer.libraries.ck_tile import api
from tileseer.libraries.ck_tile.kernel import parse
from tileseer.libraries.ck_tile.rules import RULES
from tileseer.libraries.ck_tile.sweep import CkTileSweep
from tileseer.libraries.rule_sets import RuleSet
from tileseer.libraries.rules import Rule, broken_rules
from tileseer.problems.operation import Operation

SWEEP = CONFIG / "rule_sets/sweep.yaml"


def enumerated(arch, operation, ndims=(2,), rules=None):
    return (rules or CkTileSweep.read_file(SWEEP)).enumerate(SPECS, arch, Operation.parse(operation), list(ndims))


@pytest.mark.parametrize("reads", [(), ("arch", "split"), ("arch", "problem"), ("kernels",)])
def test_a_rule_that_nobody_would_ask_is_refused_where_it_is_written(reads):
    with pytest.raises(ValueError, match="the rule never_asked reads"):
        Rule("never_asked", "", reads, lambda *parts: True)


@pytest.mark.parametrize(
    ("operation", "count", "split_k"),
    [("forward_bf16", 120, [1]), ("bwd_data_bf16", 68, [1]), ("bwd_weight_bf16", 136, [1, 8, 64])],
)
@pytest.mark.parametrize("ndim", [2, 3])
def test_the_sweep_pool_has_the_published_size_on_gfx950(operation, count, split_k, ndim):
    result = enumerated("gfx950", operation, [ndim])
    assert len(result.kernels) == count
    assert result.rejected == []
    assert result.split_k == split_k


def test_what_an_arch_cannot_do_is_refused_with_a_reason_and_never_changed():
    result = enumerated("gfx942", "forward_bf16")
    refused = {parse(r.kernel).wave for r in result.rejected if r.rule == "waves_on_arch"}
    assert refused == {(4, 4, 1), (8, 2, 1)}
    assert not {k.wave for k in result.kernels} & refused
    assert [tile for tile, _ in result.unused_tiles] == ["128x128x64", "128x64x128"]
    assert all(r.reason for r in result.rejected)


@pytest.mark.parametrize("arch", ["gfx942", "gfx90a"])
@pytest.mark.parametrize(
    ("operation", "count"), [("forward_bf16", 104), ("bwd_data_bf16", 60), ("bwd_weight_bf16", 120)]
)
@pytest.mark.parametrize("ndim", [2, 3])
def test_every_tile_that_an_arch_has_waves_for_is_offered_at_each_level_in_each_direction(arch, operation, count, ndim):
    pool = enumerated(arch, operation, [ndim])
    assert len(pool.kernels) == count
    assert {row.rule for row in pool.rejected} == {"waves_on_arch"}
    for level in api.LEVELS:
        table = api.read_api(CONFIG / "ck_api.yaml", level)
        assert not [kernel for kernel in pool.kernels if table.lack(kernel, arch)]
    waves = [tuple(wave) for wave in SPECS.arch(arch).waves]
    tiles = CkTileSweep.read_file(SWEEP).tiles
    had = {(*row.tile, *row.wave, *row.warp_tile) for row in tiles if tuple(row.wave) in waves}
    assert {(*kernel.tile, *kernel.wave, *kernel.warp_tile) for kernel in pool.kernels} == had


def test_an_arch_that_transposes_in_registers_has_vectors_of_its_own():
    """The other archs have those of the tiles, and no tile that is for others."""
    tiles = CkTileSweep.read_file(SWEEP).tiles
    for arch in ("gfx950", "gfx942", "gfx90a"):
        for operation in ("forward_bf16", "bwd_data_bf16", "bwd_weight_bf16"):
            kernels = enumerated(arch, operation).kernels
            of_tiles = {(*row.tile, *row.vectors) for row in tiles if arch in row.only_on or not row.only_on}
            as_tiles = all((*kernel.tile, *kernel.vectors) in of_tiles for kernel in kernels)
            assert as_tiles == (arch == "gfx950" or operation == "forward_bf16")
            assert arch == "gfx950" or all(api.field_word(kernel, api.OWN_VECTORS) for kernel in kernels)


def test_a_rule_set_without_a_legal_kernel_is_an_error():
    with pytest.raises(UserError, match="no kernel of the rule set is legal on gfx1201"):
        enumerated("gfx1201", "forward_bf16")


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda r: r.pop("tiles"), "tiles: this field is required"),
        (lambda r: r["tiles"][0].update(tile=[16, 64]), r"tiles\.0\.tile"),
        (lambda r: r["tiles"][0].update(tile=[16, 64, -1]), r"tiles\.0\.tile\.2"),
        (lambda r: r["tiles"][0].update(only_on=["gfx94"]), "unknown arch 'gfx94'"),
        (lambda r: r["own_vectors"].append("gfx9a0"), "unknown arch 'gfx9a0'"),
        (lambda r: r["variants"].update(sideways={}), "variants"),
        (lambda r: r["variants"]["forward"].update(split_k=[1, 2]), "only bwd_weight splits K"),
        (
            lambda r: r["variants"]["forward"]["options"][0].update(pipeline="compv9"),
            "pipeline: should be .*'compv9'",
        ),
        (lambda r: r["variants"].pop("forward"), r"no entry variants\.forward"),
    ],
)
def test_a_wrong_rule_set_is_named(tmp_path, edit, told):
    path = edited(SWEEP, tmp_path / "r.yaml", edit)
    with pytest.raises(UserError, match=told):
        enumerated("gfx950", "forward_bf16", rules=CkTileSweep.read_file(path))


BREAKING = [
    ("waves_on_arch", {"wave_m": 3}, "gfx950"),
    ("waves_on_arch", {"wave_m": 8, "wave_n": 2, "tile_m": 256}, "gfx942"),
    ("warp_tile_on_arch", {"warp_tile_k": 64}, "gfx950"),
    ("tile_divides", {"tile_m": 96, "tile_n": 96}, "gfx950"),
    ("threads_fit", {"wave_m": 8, "wave_n": 4, "tile_m": 256}, "gfx950"),
    ("trait_allowed", {"scheduler": "interwave"}, "gfx950"),
    ("pipeline_fits_variant", {"pipeline": "compv5", "variant": "bwd_data"}, "gfx950"),
    ("options_fit_variant", {"two_stage": True}, "gfx950"),
    ("options_fit_variant", {"streamk": "tree"}, "gfx950"),
    ("buffering_fits_pipeline", {"pipeline": "compv4"}, "gfx950"),
    ("vector_widths", {"vec_a": 6}, "gfx950"),
    ("one_channel", {"specialization": "filter3x3", "vec_a": 2, "vec_b": 1, "vec_c": 1}, "gfx950"),
    ("one_channel", {"specialization": "filter3x3", "vec_a": 1, "vec_b": 8}, "gfx950"),
    ("lds_fits", {"tile_m": 512, "tile_n": 512, "tile_k": 128}, "gfx950"),
    ("lds_fits", {"tile_m": 256, "tile_n": 128, "double_smem_buffer": True}, "gfx942"),
    ("scheduler_fits_pipeline", {"scheduler": "interwave"}, "gfx950"),
    ("streamk_fits_waves", {"streamk": "tree", "variant": "bwd_weight"}, "gfx1201"),
    ("full_load_per_thread", {"pipeline": "compv6", "tile_n": 64, "tile_k": 16, "tile_m": 64}, "gfx950"),
]


def test_every_rule_has_a_kernel_that_breaks_it():
    assert {rule for rule, *_ in BREAKING} == {rule.name for rule in RULES.legality}


def broken(kernel, arch="gfx950"):
    """The rules that a kernel breaks, with the reason."""
    return dict(broken_rules(RULES.legality, RULES.parts([kernel], arch, SPECS))[0])


@pytest.mark.parametrize(("rule", "changes", "arch"), BREAKING)
def test_a_rule_refuses_and_says_why(rule, changes, arch):
    reason = broken(a_kernel(**changes), arch)[rule]
    assert reason and "{" not in reason


@pytest.mark.parametrize("arch", ["gfx950", "gfx942", "gfx90a"])
def test_a_legal_kernel_passes_every_rule(arch):
    assert broken(a_kernel(), arch) == {}
    # It loads single channels.
    assert broken(a_kernel(specialization="filter3x3", vec_a=1, vec_b=1), arch) == {}


def test_kernels_with_a_known_defect_are_left_out_unless_they_are_asked_for():
    rules, weight = CkTileSweep.read_file(SWEEP), Operation.parse("bwd_weight_bf16")
    strict = rules.enumerate(SPECS, "gfx950", weight, [2], ())
    asked = rules.enumerate(SPECS, "gfx950", weight, [2], ("half_zero_output",))
    assert len(asked.kernels) == 136 and set(strict.kernels) < set(asked.kernels)
    gone = set(asked.kernels) - set(strict.kernels)
    assert {(kernel.scheduler, kernel.pipeline) for kernel in gone} == {("interwave", "mem")}
    flagged = [row for row in strict.rejected if row.rule == "half_zero_output"]
    assert {row.kernel for row in flagged} == {kernel.name for kernel in gone} and all(row.reason for row in flagged)
    with pytest.raises(UserError, match="unknown flag 'slow'"):
        RuleSet(str(SWEEP), CONFIG, None, SPECS).enumerate_kernels(
            "gfx950", weight, ConfigsSettings(include_flagged=["slow"])
        )
