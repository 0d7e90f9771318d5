"""Another workflow uses this one as a module: its folder holds the results, ours the sources."""

from __future__ import annotations

import shutil

import pytest
import yaml
from small_workflow import CONFIG, Workflow, lay_out

THEIR_SNAKEFILE = """
configfile: "config.yaml"

module tilewright:
    snakefile: "vendor/tilewright/Snakefile"
    config: config["tilewright"]

use rule * from tilewright exclude all {names}

rule everything:
    default_target: True
    input: "results/models/gfx950"
    output: "count.txt"
    shell: "ls {{input}} | wc -l > {{output}}"
"""


@pytest.mark.parametrize("names", ["", "as kernels_*"])
def test_a_workflow_that_uses_ours_as_a_module_gets_a_model(tmp_path, names):
    lay_out(tmp_path / "vendor/tilewright")
    shutil.rmtree(tmp_path / "vendor/tilewright/profiles")
    theirs = Workflow(tmp_path)
    (tmp_path / "Snakefile").write_text(THEIR_SNAKEFILE.format(names=names))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"tilewright": CONFIG}))
    theirs.make("everything")
    assert (tmp_path / "results/models/gfx950").is_dir()
    assert int((tmp_path / "count.txt").read_text()) > 0
    assert not (tmp_path / "vendor/tilewright/results").exists()
    assert "Nothing to be done" in theirs.make("everything").output


def test_their_own_table_goes_before_ours(tmp_path):
    lay_out(tmp_path / "vendor/tilewright")
    theirs = Workflow(tmp_path)
    (tmp_path / "Snakefile").write_text(THEIR_SNAKEFILE.format(names=""))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"tilewright": CONFIG}))
    rules = tmp_path / "config/rule_sets/small.yaml"
    rules.parent.mkdir(parents=True)
    rules.write_text("tiles: none\n")
    run = theirs.run("everything")
    assert run.status != 0
    assert "config/rule_sets/small.yaml: tiles" in run.output
