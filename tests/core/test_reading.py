"""Files of others: no pipe, device, huge file, path or number of one reaches further than its reader."""

import ast
import io
import os
import tarfile
from pathlib import Path

import pytest

from tileseer.core import bundle, seal
from tileseer.core.documents import parse_json
from tileseer.core.errors import UserError
from tileseer.core.reading import read_utf8, regular_file
from tileseer.learn.learners.trees import text
from tileseer.measure.journal import check_header

ROOT = Path(__file__).parents[2]
UNBOUNDED = {"read_text", "read_bytes", "open"}
"""Methods of a path, and a function, that read what is there: a pipe for ever, a device until memory is full."""
PROC = {"measure/harness/worker.py", "core/isolation.py"}
"""Files that open what the kernel shows in /proc, or descriptors."""


def test_no_module_reads_a_file_but_through_the_bounded_reader():
    found = []
    packages = [ROOT / "src/tileseer", ROOT / "packages/tileseer_emulated/src/tileseer_emulated"]
    for package in packages:
        for path in sorted(package.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and _reads(node):
                    found.append(f"{path.relative_to(package)}:{node.lineno}")
    allowed = {*PROC, "core/reading.py", "testing/learner.py"}
    others = [place for place in found if place.split(":")[0] not in allowed]
    assert not others, f"use core/reading.py: {others}"


def _reads(call: ast.Call) -> bool:
    function = call.func
    writes = any(isinstance(each, ast.Constant) and str(each.value)[:1] in ("w", "a") for each in call.args)
    if isinstance(function, ast.Name):
        return function.id == "open" and not writes
    owner = getattr(getattr(function, "value", None), "id", "")
    return getattr(function, "attr", "") in UNBOUNDED and not writes and owner not in ("os", "tarfile", "bz2")


@pytest.fixture
def special(tmp_path):
    """A pipe that nobody writes to, a folder and a device."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    return tmp_path / "pipe", tmp_path / "folder", Path("/dev/zero")


@pytest.mark.parametrize("reader", [read_utf8, regular_file, seal.file_digest, bundle.read_bundle, check_header])
def test_what_is_no_regular_file_is_refused_at_once(special, reader):
    for path in special:
        with pytest.raises(UserError, match=rf"{path}.*: is a "):
            reader(path)


def test_a_pipe_as_a_seal_is_refused(tmp_path):
    (tmp_path / "part").write_text("x")
    os.mkfifo(seal.seal_path(tmp_path / "part"))
    with pytest.raises(UserError, match="is a pipe"):
        seal.check_seal(tmp_path / "part")


def member(name, **fields):
    entry = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(entry, field, value)
    return entry


@pytest.mark.parametrize(
    "entry",
    [
        member("../evil"), member("/abs/evil"), member("a/../../evil"),
        member("link", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("link", type=tarfile.LNKTYPE, linkname="../evil"),
        member("pipe", type=tarfile.FIFOTYPE), member("zero", type=tarfile.CHRTYPE), member("d", type=tarfile.DIRTYPE),
    ],
    ids=lambda entry: f"{entry.name} {entry.type.decode()}",
)  # fmt: skip
def test_a_bundle_holds_files_below_its_folder_alone(tmp_path, entry):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.addfile(entry, io.BytesIO())
    with pytest.raises(UserError, match="no readable bundle"):
        bundle.read_bundle(tmp_path / "x.tar")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", '{"a": [1, -1e999]}'])
def test_json_has_finite_numbers_alone(number):
    with pytest.raises(UserError, match="is no number that a file may hold"):
        parse_json(number, "x.json")


TREE = """tree
num_class=1
num_tree_per_iteration=1
max_feature_idx=0
feature_names=a

Tree=0
num_leaves=2
num_cat=0
split_feature=0
threshold=0.5
decision_type=2
left_child=-1
right_child=-2
leaf_value=0.25 -0.25
shrinkage=1

end of trees
"""


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e308"])
@pytest.mark.parametrize("old", ["leaf_value=0.25", "threshold=0.5", "shrinkage=1"])
def test_trees_have_finite_numbers_alone(old, number):
    assert text.fault_of(TREE, 1) == ""
    finite = number == "1e308" and not old.startswith("leaf")
    assert bool(text.fault_of(TREE.replace(old, f"{old.split('=')[0]}={number}"), 1)) is not finite
