"""Whatever stands in a file of the user: it is read, or a message names the file. Nothing in it is carried out."""

import json
from pathlib import Path

import pytest
import yaml
from hostile_values import HOSTILE, changed, places
from hypothesis import given, settings
from hypothesis import strategies as st

from tileseer.core.errors import UserError
from tileseer.facts import hardware
from tileseer.facts.arch import ArchSpecs
from tileseer.facts.config import check
from tileseer.libraries.ck_tile import api as ck_api
from tileseer.libraries.ck_tile.sweep import CkTileSweep
from tileseer.libraries.costs.coefficients import load_coefficients
from tileseer.problems import problem_sets
from tileseer.problems.operation import Operation

ROOT = Path(__file__).parents[2]


def read_config(path):
    check(yaml.safe_load(path.read_text()), str(path))


TABLES = {
    "config/config.yaml": read_config,
    "config/arch_specs.json": ArchSpecs.load,
    "config/hardware.yaml": hardware.read_products,
    "config/simulated_device.yaml": load_coefficients,
    "config/ck_api.yaml": ck_api.read_api,
    "config/rule_sets/sweep.yaml": CkTileSweep.read_file,
    "config/problems/training.yaml": lambda path: problem_sets.generate_problems(
        path, Operation.parse("forward_bf16"), (2,), 1
    ),
}


def read(name, path, before):
    try:
        TABLES[name](path)
    except UserError as error:
        assert path.name in str(error)
    assert sorted(path.parent.iterdir()) == before


@pytest.fixture(scope="module")
def tables():
    return {name: yaml.safe_load((ROOT / name).read_text()) for name in TABLES}


@pytest.mark.parametrize("name", TABLES)
@settings(max_examples=25)
@given(data=st.data())
def test_a_hostile_value_or_name_anywhere(name, data, tables, tmp_path_factory, monkeypatch_module):
    folder = tmp_path_factory.mktemp("input")
    monkeypatch_module.chdir(folder)
    table = tables[name]
    content = changed(
        table, data.draw(st.sampled_from(list(places(table)))), data.draw(HOSTILE), rename=data.draw(st.booleans())
    )
    path = folder / Path(name).name
    text = json.dumps(content) if path.suffix == ".json" else yaml.safe_dump(content)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    read(name, path, [path])


@pytest.mark.parametrize("name", [name for name in TABLES if name != "config/config.yaml"])
@settings(max_examples=15)
@given(data=st.data())
def test_damaged_bytes_anywhere(name, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("input")
    content = bytearray((ROOT / name).read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at : at + data.draw(st.integers(0, 20))] = data.draw(st.binary(max_size=20))
    path = folder / Path(name).name
    path.write_bytes(content)
    read(name, path, [path])


def test_a_misspelt_level_of_the_api_is_named(tmp_path):
    path = tmp_path / "ck_api.yaml"
    path.write_text((ROOT / "config/ck_api.yaml").read_text().replace("\nlevel:", "\nlevem:"))
    with pytest.raises(UserError, match=r"ck_api\.yaml: no API level"):
        ck_api.read_api(path)


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch
