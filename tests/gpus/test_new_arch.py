"""``tileseer new-arch``: the entry is that of a known target but for what was asked, and nothing else changes."""

import json
import shutil
from pathlib import Path

import pytest

from tileseer.cli import main
from tileseer.gpus.arch import ArchSpecs

ROOT = Path(__file__).parents[2]


@pytest.fixture
def table(tmp_path):
    shutil.copy(ROOT / "config/arch_specs.json", tmp_path)
    return tmp_path / "arch_specs.json"


def call(table, *arguments):
    return main.main(["new-arch", *arguments, "--config", str(table.parent)])


def test_the_loader_reads_the_new_entry_and_the_old_ones(table, capsys):
    before = ArchSpecs.load(table)
    text = table.read_text()
    assert call(table, "gfx951", "--like", "gfx950", "--lds-kib", "192", "--product", 'a "new" one') == 0
    after = ArchSpecs.load(table)
    new, old = after.arch("gfx951"), before.arch("gfx950")
    assert (new.lds_kib, new.product) == (192, 'a "new" one')
    assert (new.waves, new.warp_tiles, new.family) == (old.waves, old.warp_tiles, old.family)
    assert {name: info for name, info in after.archs.items() if name != "gfx951"} == before.archs
    assert len(table.read_text().splitlines()) > len(text.splitlines())
    assert set(text.splitlines()) <= set(table.read_text().splitlines())
    assert "hardware.yaml" in capsys.readouterr().out


@pytest.mark.parametrize("like", sorted(ArchSpecs.load(ROOT / "config/arch_specs.json").archs))
def test_every_target_can_be_the_pattern(table, like):
    assert call(table, "gfx951", "--like", like) == 0
    specs = ArchSpecs.load(table)
    assert specs.arch("gfx951") == specs.arch(like)


def test_printing_writes_nothing(table, capsys):
    text = table.read_text()
    assert call(table, "gfx951", "--like", "gfx950", "--print", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert table.read_text() == text and not printed["written"]
    assert json.loads("{" + printed["entry"] + "}")["gfx951"]["wave_size"] == 64


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("gfx950", "--like", "gfx942"), "there already"),
        (("gfx951", "--like", "gfx000"), "unknown arch 'gfx000'"),
        (("h100", "--like", "gfx950"), "no name of a target"),
        (("gfx951", "--like", "gfx950", "--family", "cdna9"), "family"),
        (("gfx951", "--like", "gfx950", "--wave-size", "48"), "wave_size"),
    ],
)
def test_mistakes_are_named_and_change_nothing(table, capsys, arguments, told):
    text = table.read_text()
    assert call(table, *arguments) == 2
    assert told in capsys.readouterr().err and table.read_text() == text
