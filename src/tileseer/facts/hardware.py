"""GPU products: facts of a device for the simulator, the features and the support rules."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import indent
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationInfo, field_validator

from tileseer.core import strict_tables
from tileseer.core.errors import UserError
from tileseer.core.reading import read_utf8
from tileseer.facts.names import Arch, Product

# The limits are those of units that are mistaken: bytes for MiB, GB for TB, milliseconds for microseconds.
_Count = Annotated[int, Field(ge=1, le=100_000)]
_Mib = Annotated[float, Field(gt=0, lt=10_000)]
_TbPerS = Annotated[float, Field(gt=0, lt=200)]
_Share = Annotated[float, Field(gt=0, le=1)]


def target(arch: str) -> str:
    """Return the GPU target of an arch: what others recorded of ``gfx950`` may be called ``gfx950_mi355x``."""
    words = arch.split("_")
    return "_".join(words[: 2 if words[0] == "sm" else 1])


def of_its_arch(product: str, file: ValidationInfo) -> str:
    """Validate a field of a file that names a product: its target is that of the field ``arch``."""
    arch = target(file.data.get("arch", ""))
    if arch and product.startswith(("gfx", "sm_")) and target(product) != arch:
        raise strict_tables.wrong(f"should be a product of {arch}, which is the field arch")
    return product


class Hardware(strict_tables.StrictModel):
    """One product; the fields and their units are explained at the head of config/hardware.yaml."""

    name: Product
    arch: Arch
    compute_units: _Count
    clock_ghz: Annotated[float, Field(gt=0.1, lt=10)]
    xcds: _Count
    simds_per_cu: _Count
    shader_engines: _Count
    max_waves_per_cu: _Count
    wave_size: Literal[32, 64]
    matrix_flops_16bit: _Count
    matrix_flops_fp32: _Count
    short_k_rate: _Share
    vgprs_per_simd_lane: _Count
    max_vgprs_per_wave: _Count
    lds_kib: _Count
    lds_bytes_per_clock: _Count
    l1_kib: _Count
    l2_mib: _Mib
    llc_mib: Annotated[float, Field(ge=0, lt=10_000)]
    l2_tb_per_s: _TbPerS
    llc_tb_per_s: _TbPerS
    hbm_tb_per_s: _TbPerS
    async_load_128bit: bool
    launch_floor_us: Annotated[float, Field(gt=0.1, lt=100)]

    @property
    def lds_bytes(self) -> int:
        """Local data share of a compute unit, bytes."""
        return self.lds_kib * 1024

    def peak_tflops(self, dtype: str) -> float:
        """Return the dense matrix peak of the device for a data type, TFLOPS."""
        rate = self.matrix_flops_fp32 if dtype == "fp32" else self.matrix_flops_16bit
        return self.compute_units * rate * self.clock_ghz / 1000


class _File(strict_tables.StrictModel):
    products: Annotated[dict[Product, Hardware], Field(min_length=1)]

    @field_validator("products", mode="before")
    @classmethod
    def _named_by_their_keys(cls, products: Any) -> Any:
        if not isinstance(products, dict) or not all(isinstance(row, dict) for row in products.values()):
            return products
        for product, row in products.items():
            if "name" in row:
                raise strict_tables.wrong_below(product, row["name"], "should have no field name: the key is the name")
        return {product: {"name": product, **row} for product, row in products.items()}


def read_products(path: str | Path) -> dict[str, Hardware]:
    """Return every product of the table ``path`` by its key; ``UserError`` on a mistake in it."""
    return strict_tables.read_yaml_table(path, _File).products


def product_of_units(products: Mapping[str, Hardware], gpu: str, units: int) -> Hardware:
    """Return the product of a target with so many compute units; one that the table lacks is made of the nearest.

    Nearest is the one of the same target, or else of the likest name, whose number of units differs least. Units, dies
    and bandwidths are in proportion; everything is assumed.
    """
    own = [one for one in products.values() if one.arch == gpu]
    if exact := [one for one in own if one.compute_units == units]:
        return exact[0]
    alike = own or [max(products.values(), key=lambda one: _alike(one.arch, gpu))]
    near = min(alike, key=lambda one: abs(math.log(one.compute_units / units)))
    share = units / near.compute_units
    counts = {name: max(1, round(getattr(near, name) * share)) for name in ("xcds", "shader_engines")}
    rates = {
        name: round(getattr(near, name) * share, 3)
        for name in ("llc_mib", "l2_tb_per_s", "llc_tb_per_s", "hbm_tb_per_s")
    }
    about = {"name": f"{gpu}_{units}", "arch": gpu, "compute_units": units}
    return near.model_copy(update=about | counts | rates)


def _alike(one: str, other: str) -> int:
    """Return how many characters two names have in common at their beginning."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def table_with(path: str | Path, products: Iterable[Hardware]) -> str:
    """Return the text of the table ``path`` with more products."""
    more = {one.name: one.model_dump(exclude={"name"}) for one in products}
    text = yaml.safe_dump(more, sort_keys=False, default_flow_style=None)
    return read_utf8(Path(path)).rstrip() + "\n" + indent(text, "  ")


def product_of_arch(path: str | Path, arch: str) -> Hardware:
    """Return the first product of an arch, for what all products of one have alike: their compute unit."""
    products = [product for product in read_products(path).values() if product.arch == arch]
    if not products:
        raise UserError(f"{path}: no product has the arch {arch}; add one")
    return products[0]


def hardware_of_arch(path: str | Path, products: Mapping[str, str], arch: str) -> Hardware:
    """Return the product that ``products`` (benchmark.products) has for an arch; ``UserError`` if none of its GPUs."""
    table = read_products(path)
    of_target = [name for name, gpu in table.items() if gpu.arch == target(arch)]
    names = f"one of {', '.join(of_target)}" if of_target else f"a product of {target(arch)} that you add to {path}"
    if arch not in products:
        raise UserError(f"benchmark.products: there is no entry for {arch}; write {arch}: and {names}")
    if products[arch] not in of_target:
        other = f"a {table[products[arch]].arch}" if products[arch] in table else "none of its products"
        way = f", or correct its arch there to {target(arch)}" if products[arch] in table else ""
        raise UserError(f"benchmark.products.{arch}: {products[arch]} is {other} in {path}; write {names}{way}")
    return table[products[arch]]


def read_hardware(path: str | Path, product: str) -> Hardware:
    """Return one product of the table ``path``; ``UserError`` if it is not there."""
    products = read_products(path)
    if product in ("", "none"):
        raise UserError(f"this arch has no GPU product: give benchmark.products an entry, one of {', '.join(products)}")
    if product not in products:
        raise UserError(f"{path}: there is no product {product!r}; it has {', '.join(products)}")
    return products[product]
