"""The two forms of the environment name the same packages."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
CONDA_NAMES = {"msgpack": "msgpack-python", "snakemake": "snakemake-minimal"}


def locked():
    lines = (ROOT / "envs/requirements.lock").read_text().splitlines()
    return dict(
        re.match(r"([a-z0-9-]+)==([^ ;\\]+)", line).groups() for line in lines if re.match(r"[a-z0-9-]+==", line)
    )


def test_every_locked_package_has_a_hash():
    blocks = re.split(r"\n(?=[a-z0-9-]+==)", (ROOT / "envs/requirements.lock").read_text())
    assert len(blocks) > 50
    assert all("--hash=sha256:" in block for block in blocks[1:])


def test_conda_and_lock_file_agree_on_the_direct_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = project["dependencies"] + project["optional-dependencies"]["workflow"]
    direct = [re.match(r"[A-Za-z0-9-]+", requirement)[0] for requirement in requirements]
    conda = yaml.safe_load((ROOT / "envs/tilewright.yaml").read_text())["dependencies"]
    pinned = dict(re.fullmatch(r"([a-z0-9-]+) =(\S+)", entry).groups() for entry in conda)
    assert pinned.pop("python") == "3.11"
    # A post-release is the same software packed again; conda has its own build numbers for that.
    expected = {CONDA_NAMES.get(name, name): re.sub(r"\.post\d+$", "", locked()[name]) for name in direct}
    assert pinned == expected
