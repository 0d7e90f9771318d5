"""Another workflow uses this one as a module: its folder holds the results, ours the sources."""

from __future__ import annotations

import shutil
from collections import Counter

import yaml
from small_workflow import Workflow, lay_out, small_config

THEIR_SNAKEFILE = """
configfile: "config.yaml"

module tileseer:
    snakefile: "vendor/tileseer/{snakefile}"
    config: config["tileseer"]
    {prefix}

use rule * from tileseer exclude {without} {names}

rule theirs:
    default_target: True
    input: "{results}/models/gfx950"
    output: "count.txt"
    shell: "ls {{input}} | wc -l > {{output}}"
"""


ROOT_FILE = {"snakefile": "Snakefile", "without": "all", "prefix": "", "results": "results"}
CATALOGUE_FILE = {"snakefile": "workflow/Snakefile", "without": "all, everything"}
CATALOGUE_FILE |= {"prefix": 'prefix: "part"', "results": "part/results"}


def test_a_workflow_that_uses_ours_as_a_module_gets_a_model(tmp_path):
    lay_out(tmp_path / "vendor/tileseer")
    shutil.rmtree(tmp_path / "vendor/tileseer/profiles")
    theirs = Workflow(tmp_path)
    (tmp_path / "Snakefile").write_text(THEIR_SNAKEFILE.format(names="as kernels_*", **CATALOGUE_FILE))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"tileseer": small_config(tmp_path)}))
    theirs.make("theirs")
    assert (tmp_path / "part/results/models/gfx950").is_dir()
    assert int((tmp_path / "count.txt").read_text()) > 0
    assert not (tmp_path / "vendor/tileseer/results").exists()
    assert "Nothing to be done" in theirs.make("theirs").output


def test_their_own_table_goes_before_ours(tmp_path):
    lay_out(tmp_path / "vendor/tileseer")
    theirs = Workflow(tmp_path)
    (tmp_path / "Snakefile").write_text(THEIR_SNAKEFILE.format(names="", **ROOT_FILE))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"tileseer": small_config(tmp_path)}))
    rules = tmp_path / "config/rule_sets/small.yaml"
    rules.parent.mkdir(parents=True)
    rules.write_text("tiles: none\n")
    assert "config/rule_sets/small.yaml: tiles" in theirs.refuse("theirs", runs_jobs=True)


def test_the_file_of_the_catalogue_makes_what_the_root_makes(made, fresh):
    planned = fresh.make("--dry-run", "--snakefile", "workflow/Snakefile").planned
    assert planned == made[1].jobs + Counter(everything=1)
