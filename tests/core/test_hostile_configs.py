"""Configurations that Snakemake would read in silence, with a traceback, or run."""

import json
import os
import subprocess
import sys

import pytest

from tileseer.core.errors import UserError
from tileseer.core.tables import check_config_file

HOSTILE = {
    "twice.yaml": ("arch: gfx950\narch: gfx942\n", "'arch' is written twice"),
    "twice.json": ('{"arch": "gfx950", "arch": "gfx942"}', "arch: this key is written twice"),
    "deep.yaml": ("a: " + "[" * 100_000, "nested too deeply"),
    "deep.json": ("[" * 100_000, "nested too deeply"),
    "block.yaml": ("".join(f"{' ' * depth}a:\n" for depth in range(1500)), "nested too deeply"),
    "template.yaml": ("__use_yte__: true\narch: ?__import__('os').system('touch pwned')\n", "lets the file run code"),
    "latin.yaml": (b"arch: gfx950 # \xe9\n", "is not UTF-8"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_configuration_is_one_line(name, tmp_path):
    content, reason = HOSTILE[name]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=f"{name}.*{reason}"):
        check_config_file(path)


def test_plain_yaml_and_json_pass(tmp_path):
    for name, text in {"a.yaml": "arch: gfx950 # é\n", "a.json": json.dumps({"arch": "gfx950"})}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        check_config_file(tmp_path / name)


def test_texts_are_utf8_whatever_the_locale_says(tmp_path):
    (tmp_path / "é.yaml").write_text("# ☃\narch: gfx950\narch: é\n", encoding="utf-8")
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    code = "import pathlib; from tileseer.core.tables import check_config_file as c; c(*pathlib.Path().glob('*.yaml'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert b"'arch' is written twice" in done.stderr
