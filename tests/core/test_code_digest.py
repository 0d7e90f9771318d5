"""What the code of a stage is: syntax of the modules that it imports, and versions of packages."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from tileseer.core import code_digest

ROOT = Path(__file__).parents[2]
STAGES = sorted(path.stem for path in (ROOT / "workflow/scripts").glob("*.py"))


def used(stage):
    return code_digest.modules_of(ROOT / f"workflow/scripts/{stage}.py").keys()


@pytest.mark.parametrize("stage", STAGES)
def test_the_list_is_what_python_really_imports(stage):
    code = (
        "import runpy, sys\n"
        f"runpy.run_path('workflow/scripts/{stage}.py', run_name='not_main')\n"
        "print(*(name for name in sys.modules if name.split('.')[0] in ('tileseer', 'amdgpu_emulator')))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={"PYTHONPATH": "src"}, capture_output=True, text=True, check=True
    )
    assert {*run.stdout.split()} <= used(stage)


@pytest.mark.parametrize(
    ("module", "stages"),
    [
        ("kernels.ck_tile.legality", "configs"),
        ("problems.problem_sets", "problems"),
        ("core.bundle", "compile headers libraries sources verdict_table verdicts"),
        ("compile.none", "compile libraries"),
        ("core.locks", "benchmark dataset plans"),
        ("measure.journal", "benchmark dataset"),
        ("dataset.assembly", "dataset"),
        ("learn.boosting", "model serving validation"),
        ("learn.validation", "validation"),
        ("report.page", "report"),
    ],
)
def test_a_module_is_code_of_exactly_the_stages_that_use_it(module, stages):
    assert {stage for stage in STAGES if f"tileseer.{module}" in used(stage)} == set(stages.split())


@pytest.fixture
def package(tmp_path):
    """Write modules of a package of that name in another folder; return their modules as a script sees them."""

    def write(script, **modules):
        for name, text in {"__init__": "", **modules}.items():
            path = tmp_path / "tileseer" / f"{name.replace('__in__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "script.py").write_text(script)
        return code_digest.code_now(tmp_path / "script.py")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code_digest, "SOURCE", tmp_path)
        yield write
    code_digest.code_now(ROOT / "workflow/scripts/model.py")


def test_imports_inside_functions_and_of_members_are_found(package):
    modules = {
        "sub__in____init__": "",
        "sub__in__deep": "def f():\n    import tileseer.late\n",
        "late": "",
        "unused": "",
    }
    code = package("from tileseer.sub import deep\n", **modules)
    assert [*code.modules] == ["__main__", "tileseer", "tileseer.late", "tileseer.sub", "tileseer.sub.deep"]


def test_imports_for_type_checkers_only_do_not_count(package):
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tileseer.typed import X\n"
    assert [*package(text, typed="X = 1").modules] == ["__main__"]


SCRIPT = "from tileseer import a, b\n"


@pytest.mark.parametrize("text", ["# comment\nX = 1", "X = (1)", '"""Docstring."""\nX = 1', 'X = 1\n"""What it is."""'])
def test_comments_and_docstrings_are_no_code(package, text):
    assert package(SCRIPT, a="X = 1", b="Y = 2") == package(SCRIPT, a=text, b="Y = 2")


def test_other_syntax_and_exchanged_modules_are_other_code(package):
    codes = [package(SCRIPT, a=a, b=b) for a, b in (("X = 1", "Y = 2"), ("X = 3", "Y = 2"), ("Y = 2", "X = 1"))]
    assert len({str(code) for code in codes}) == 3


def test_packages_are_found_whatever_their_import_names(package):
    code = package("import yaml, elftools.elf.elffile\nfrom tileseer import a\n", a="import vl_convert, json\n")
    names = ("PyYAML", "pyelftools", "vl-convert-python")
    assert {name.lower().replace("-", "_") for name in code.packages} == {n.lower().replace("-", "_") for n in names}
    assert set(code.packages.values()) == {importlib.metadata.version(name) for name in names}


RUN_TIME = ("numpy", "pandas", "pyarrow", "lightgbm", "pydantic", "PyYAML", "Jinja2", "altair", "vl-convert-python")
RUN_TIME += ("pyelftools", "scipy", "msgpack", "filelock")


@pytest.mark.parametrize("package", RUN_TIME)
def test_another_version_of_a_package_is_other_code_of_the_stages_that_use_it(package, monkeypatch):
    scripts = [ROOT / f"workflow/scripts/{stage}.py" for stage in STAGES]
    before = [code_digest.code_of(script) for script in scripts]
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0" if name == package else version(name))
    code_digest.code_of.cache_clear()
    assert any(code_digest.code_of(script) != code for script, code in zip(scripts, before, strict=True))
    code_digest.code_of.cache_clear()
