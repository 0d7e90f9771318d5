"""The profiles: each is loaded in place of the default one, so each has to say what that says."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


def profile(name):
    return yaml.safe_load((ROOT / f"profiles/{name}/config.yaml").read_text())


@pytest.mark.parametrize("name", ["ci", "slurm"])
def test_a_profile_repeats_the_lines_of_the_default_one(name):
    lines = profile("default")
    if name == "slurm":
        # There the limit is SLURM's.
        assert profile(name)["resources"]["gpu"] > 1000 and lines.pop("resources") == {"gpu": 1}
    assert lines.items() <= profile(name).items()


def test_slurm_gives_every_measuring_rule_a_gpu_of_its_own():
    rules = "\n".join(path.read_text() for path in (ROOT / "workflow/rules").glob("*.smk"))
    blocks = re.split(r"^(?:checkpoint|rule) (\w+):$", rules, flags=re.M)
    measuring = {
        name for name, body in zip(blocks[1::2], blocks[2::2], strict=True) if re.search(r"^\s+gpu=1,$", body, re.M)
    }
    assert measuring >= {"benchmark", "active"}
    for name in measuring:
        resources = profile("slurm")["set-resources"][name]
        assert (resources["slurm_partition"], resources["gres"], resources["gpu"]) == ("gpu", "gpu:1", 0)


def test_slurm_names_only_rules_that_exist():
    rules = "\n".join(path.read_text() for path in (ROOT / "workflow/rules").glob("*.smk"))
    known = set(re.findall(r"^(?:checkpoint|rule) (\w+):$", rules, re.M))
    slurm = profile("slurm")
    assert known >= set(slurm["set-resources"]) | {entry.split("=")[0] for entry in slurm["groups"]}
