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
        # There SLURM hands out the GPUs, and a limit would count what is submitted.
        assert "resources" not in profile(name) and lines.pop("resources") == {"gpu": 1}
        assert lines.pop("cores") == "all"
        # Jobs of a killed run go on in the cluster: there the user unlocks.
        assert lines.pop("nolock") and "nolock" not in profile(name)
    assert lines.items() <= profile(name).items()


def rule_texts():
    """The text of each rule."""
    rules = "\n".join(path.read_text() for path in (ROOT / "workflow/rules").glob("*.smk"))
    blocks = re.split(r"^(?:use rule \w+ as|checkpoint|rule) (\w+)(?: with)?:$", rules, flags=re.M)
    return dict(zip(blocks[1::2], blocks[2::2], strict=True))


def test_slurm_gives_every_measuring_rule_a_gpu_of_its_own_and_keeps_the_others_off():
    rules = rule_texts()
    measuring = {name for name, text in rules.items() if re.search(r"^\s+gpu=1,$", text, re.M)}
    assert measuring == {"benchmark", "plans"}
    slurm = profile("slurm")
    for name in rules:
        resources = slurm["default-resources"] | slurm["set-resources"].get(name, {})
        expected = ("gpu", "gpu:1") if name in measuring else (resources["slurm_partition"], None)
        assert (resources["slurm_partition"], resources.get("gres")) == expected
        assert (resources["slurm_partition"] == "gpu") == (name in measuring)
        # Beside gres the executor takes no other request of a GPU.
        assert resources.get("gpu") == (0 if name in measuring else None)


def test_slurm_names_only_rules_that_exist():
    slurm = profile("slurm")
    assert set(rule_texts()) >= set(slurm["set-resources"]) | {entry.split("=")[0] for entry in slurm["groups"]}
