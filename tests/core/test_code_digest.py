"""What decides whether a stage runs again besides its files: settings, and code by its syntax."""

import ast
import importlib.metadata
import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

from tileseer.core import code_digest
from tileseer.facts.config import Config

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path.stem for path in (ROOT / "workflow/scripts").glob("*.py"))


def test_the_table_has_every_stage_with_its_sections():
    assert sorted(code_digest.STAGES) == SCRIPTS
    sections = {section for stage in code_digest.STAGES.values() for section in stage.sections}
    assert sections <= Config.model_fields.keys()


def test_the_rooms_are_in_the_order_that_import_linter_checks():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["type"] == "layers")
    assert tuple(reversed(layers))[: len(code_digest.ROOMS)] == code_digest.ROOMS


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_imports_only_rooms_that_count(script):
    tree = ast.parse((ROOT / f"workflow/scripts/{script}.py").read_text())
    names = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    rooms = {name.split(".")[1] for name in names if name.startswith("tileseer.")}
    counted = code_digest.ROOMS[: code_digest.ROOMS.index(code_digest.STAGES[script].room) + 1]
    assert rooms <= {*counted}


@pytest.fixture
def digest(tmp_path, monkeypatch):
    """Return the digest of a package with modules of these texts."""
    monkeypatch.setattr(code_digest, "PACKAGE", tmp_path / "tileseer")

    def write(**modules):
        for name, text in modules.items():
            path = tmp_path / f"tileseer/deep/{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for cached in (code_digest.digest_of_code, code_digest._parsed):
            cached.cache_clear()
        return code_digest.digest_of_code("tileseer")

    yield write
    code_digest.digest_of_code.cache_clear()


@pytest.mark.parametrize("text", ["# comment\nX = 1", "X = (1)", '"""Docstring."""\nX = 1', 'X = 1\n"""What it is."""'])
def test_comments_and_docstrings_are_no_code(digest, text):
    assert digest(a="X = 1", b="Y = 2") == digest(a=text, b="Y = 2")


def test_a_pattern_that_matches_nothing_is_no_code(digest):
    digest(a="X = 1")
    with pytest.raises(ValueError, match="no module matches 'tileseer/moved'"):
        code_digest.digest_of_code("tileseer", "tileseer/moved")


def test_a_package_beside_ours_counts_by_its_version_and_its_modules(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "beside_ours/module.py"
    module.parent.mkdir()
    module.with_name("__init__.py").touch()

    def identity(text, version="1"):
        module.write_text(text)
        monkeypatch.setattr(code_digest, "version_of", lambda name: version)
        for cached in (code_digest.identity_of_package, code_digest._parsed):
            cached.cache_clear()
        return code_digest.identity_of_package("beside_ours")

    first = identity("X = 1")
    assert first == identity("# comment\nX = 1") and first.startswith("beside_ours 1 ")
    assert len({first, identity("X = 2"), identity("X = 1", "2"), code_digest.identity_of_package("absent")}) == 4


def test_other_syntax_and_exchanged_modules_are_other_code(digest):
    assert len({digest(a=a, b=b) for a, b in (("X = 1", "Y = 2"), ("X = 3", "Y = 2"), ("Y = 2", "X = 1"))}) == 3


def stages_of_other_code(change):
    def codes():
        code_digest.code_of_stage.cache_clear()
        return {stage: code_digest.code_of_stage(stage) for stage in SCRIPTS}

    before = codes()
    change()
    after = codes()
    code_digest.code_of_stage.cache_clear()
    return {stage for stage in SCRIPTS if before[stage] != after[stage]}


@pytest.mark.parametrize("where", ["a checkout", "an installed package"])
def test_every_declared_package_that_the_package_imports_counts(where, tmp_path, monkeypatch):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"]["workflow"]]
    if where != "a checkout":
        lines = [
            *project["dependencies"],
            *(f"{line}; extra == 'workflow'" for line in declared),
            "torch; extra == 'torch'",
        ]
        monkeypatch.setattr(code_digest, "PACKAGE", tmp_path / "site/tileseer")
        monkeypatch.setattr(importlib.metadata, "requires", lambda name: lines)
    code_digest._declared.cache_clear()
    assert {re.split("[<>=]", line)[0] for line in declared} == {*code_digest._declared().values()}
    for module in code_digest._declared():
        assert importlib.util.find_spec(module), module
    code_digest._declared.cache_clear()


@pytest.mark.parametrize(("package", "stages"), [
    ("numpy", {*SCRIPTS}),
    ("msgpack", {*SCRIPTS} - {"arch_specs", "problems", "configs", "headers"}),
    ("jinja2", {*SCRIPTS}),
    ("pydantic", {*SCRIPTS}),
    ("pyyaml", {*SCRIPTS}),
    ("lightgbm", {"model", "serving", "evaluation", "publish", "report"}),
    ("snakemake", set()),
])  # fmt: skip
def test_another_version_of_a_package_is_other_code_of_the_stages_that_use_it(package, stages, monkeypatch):
    version = code_digest.version_of
    assert (
        stages_of_other_code(
            lambda: monkeypatch.setattr(
                code_digest, "version_of", lambda name: "0" if name == package else version(name)
            )
        )
        == stages
    )


def test_another_version_of_python_is_other_code_of_all_stages(monkeypatch):
    change = monkeypatch.setattr
    assert stages_of_other_code(lambda: change(code_digest.platform, "python_version", lambda: "4.0.0")) == {*SCRIPTS}
