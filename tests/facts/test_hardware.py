"""The hardware table: complete, and refusing mistakes by name."""

import pytest
from repository import CONFIG, edited

from tileseer.core.errors import UserError
from tileseer.facts import hardware

TABLE = CONFIG / "hardware.yaml"


@pytest.mark.parametrize(
    ("product", "arch", "peak"),
    [("gfx950_mi355x", "gfx950", 2517), ("gfx90a_mi250x_gcd", "gfx90a", 191), ("gfx1201_9070xt", "gfx1201", 195)],
)
def test_products_reach_their_published_peak(product, arch, peak):
    gpu = hardware.read_hardware(TABLE, product)
    assert (gpu.name, gpu.arch) == (product, arch)
    assert gpu.peak_tflops("bf16") == pytest.approx(peak, rel=5e-3)


def drop(field):
    return lambda products: products["gfx942_mi300x"].pop(field)


def change(field, value):
    return lambda products: products["gfx942_mi300x"].__setitem__(field, value)


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (drop("xcds"), "gfx942_mi300x.*xcds"),
        (change("compute_units", 0), "gfx942_mi300x.*compute_units.*0"),
        (change("clock_ghz", float("nan")), "gfx942_mi300x.*clock_ghz.*nan"),
        (change("cu_count", 304), "gfx942_mi300x.*cu_count: unknown field"),
        (change("name", "MI300X"), "gfx942_mi300x.*name"),
        (lambda products: products.clear(), "products"),
    ],
)
def test_mistakes_are_named_with_file_product_field_and_value(tmp_path, edit, named):
    path = edited(TABLE, tmp_path / "hardware.yaml", lambda content: edit(content["products"]))
    with pytest.raises(UserError, match=named) as caught:
        hardware.read_products(path)
    assert str(path) in str(caught.value)


def test_products_of_one_arch_have_the_same_compute_unit():
    fields = ("simds_per_cu", "wave_size", "matrix_flops_16bit", "matrix_flops_fp32", "short_k_rate",
              "lds_bytes_per_clock")  # fmt: skip
    for product in hardware.read_products(TABLE).values():
        first = hardware.product_of_arch(TABLE, product.arch)
        assert [getattr(first, field) for field in fields] == [getattr(product, field) for field in fields]


def test_an_unknown_product_or_arch_is_refused():
    with pytest.raises(UserError, match=r"'gfx950_mi999'.*gfx950_mi355x"):
        hardware.read_hardware(TABLE, "gfx950_mi999")
    with pytest.raises(UserError, match="no product has the arch gfx1; add one"):
        hardware.product_of_arch(TABLE, "gfx1")
