import subprocess
import sys
from pathlib import Path

import pytest

from tileseer.core import modules

ROOT = Path(__file__).parents[2]
STAGES = sorted(path.stem for path in (ROOT / "workflow/scripts").glob("*.py"))


def used(stage):
    files = modules.used_by(ROOT / f"workflow/scripts/{stage}.py", ROOT / "src")
    return {Path(file).relative_to(ROOT / "src/tileseer").as_posix() for file in files}


@pytest.mark.parametrize("stage", STAGES)
def test_the_list_is_what_python_really_imports(stage):
    code = (
        "import runpy, sys; from pathlib import Path\n"
        f"runpy.run_path('workflow/scripts/{stage}.py', run_name='not_main')\n"
        "print(*(m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'tileseer'), sep='\\n')"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={"PYTHONPATH": "src"}, capture_output=True, text=True, check=True
    )
    imported = {Path(line).resolve().relative_to(ROOT / "src/tileseer").as_posix() for line in run.stdout.split()}
    assert imported <= used(stage)


def test_stages_do_not_depend_on_what_they_do_not_use():
    assert "benchmark/journal.py" not in used("model")
    assert not {"model/features.py", "families/gemm_features.py"} & used("benchmark")
    assert "families/ck_tile/emit.py" not in used("compile")
    assert "gpu/arch.py" not in used("headers")
    for stage in ("configs", "headers", "compile", "libraries"):
        assert not {"families/ck_tile/support.py", "families/support_rules.py", "model/features.py"} & set(used(stage))
    for stage in ("headers", "compile", "libraries"):
        assert not any("reference/" in file or "/rules.py" in file or "validity" in file for file in used(stage))
    for stage in STAGES:
        if stage != "report":
            assert not any(file.startswith("report/") for file in used(stage))


def test_imports_inside_functions_and_of_members_are_found(tmp_path):
    package = tmp_path / "tileseer"
    (package / "sub").mkdir(parents=True)
    for name in ("__init__.py", "sub/__init__.py", "sub/deep.py", "late.py", "unused.py"):
        (package / name).write_text("")
    (package / "sub/deep.py").write_text("def f():\n    import tileseer.late\n")
    script = tmp_path / "script.py"
    script.write_text("from tileseer.sub import deep\n")
    found = [Path(file).relative_to(package).as_posix() for file in modules.used_by(script, tmp_path)]
    assert found == ["__init__.py", "late.py", "sub/__init__.py", "sub/deep.py"]


def test_imports_for_type_checkers_only_do_not_count(tmp_path):
    package = tmp_path / "tileseer"
    package.mkdir()
    for name in ("__init__.py", "typed.py"):
        (package / name).write_text("")
    script = tmp_path / "script.py"
    script.write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tileseer.typed import X\n")
    assert modules.used_by(script, tmp_path) == []


def test_the_package_knows_no_workflow_system():
    for path in (ROOT / "src").rglob("*.py"):
        assert "import snakemake" not in path.read_text(), path
