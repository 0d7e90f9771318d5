"""The arch facts as a Python module of its own: it agrees with the table, and needs no package."""

import importlib.util
import itertools
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT, SPECS

from tileseer.core.errors import UserError
from tileseer.core.strict_tables import StrictModel
from tileseer.facts.arch import render_json
from tileseer.facts.arch_render import render_python

SOURCE, TEMPLATE = ROOT / "config/arch_specs.json", ROOT / "workflow/templates/arch_specs.py.j2"


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rendered")
    script = [sys.executable, ROOT / "workflow/scripts/arch_specs.py", "--source", SOURCE, "--template", TEMPLATE]
    subprocess.run([*script, "--json", folder / "a.json", "--python", folder / "arch_specs.py"], check=True)
    assert (folder / "a.json").read_text() == render_json(SPECS)
    spec = importlib.util.spec_from_file_location("arch_specs", folder / "arch_specs.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def plain(value):
    """Return models, named tuples and tuples as plain tuples, for comparison."""
    if isinstance(value, StrictModel):
        value = tuple(item for _, item in value)
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def every_look_up():
    archs, traits = tuple(SPECS.archs), SPECS.traits
    pairs = [(a, b) for a, b, _ in SPECS.dtype_pairs]
    yield from (("warp_tiles", (arch, *pair)) for arch in archs for pair in pairs)
    yield from (("element_size", (dtype,)) for dtype in SPECS.dtypes)
    yield from (("accumulator", pair) for pair in pairs)
    yield from (("lds_budget", pair) for pair in itertools.product(traits.pipelines, archs))
    yield from (("lds_limit", (pipeline,)) for pipeline in traits.pipelines)
    names = itertools.product(traits.pipelines, traits.epilogues, traits.schedulers)
    yield from (("is_trait_excluded", trait) for trait in names)
    yield from (("operator_limits", (operator,)) for operator in SPECS.operators)


def test_the_rendered_module_agrees_with_the_table(module):
    for call, arguments in every_look_up():
        assert plain(getattr(module, call)(*arguments)) == plain(getattr(SPECS, call)(*arguments)), (call, arguments)
    for arch, info in SPECS.archs.items():
        assert {name: plain(value) for name, value in module.ARCHS[arch]._asdict().items()} == dict(info)


def test_the_rendered_module_is_clean_stands_alone_and_refuses_unknown_names(module):
    path = Path(module.__file__)
    for command in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--config", ROOT / "pyproject.toml", path]
        done = subprocess.run(ruff, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    alone = [sys.executable, "-S", "-c", "import arch_specs; print(arch_specs.wave_size('gfx950'))"]
    done = subprocess.run(alone, cwd=path.parent, env={"PYTHONPATH": "."}, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("64\n", "")
    with pytest.raises(ValueError, match=r"gfx9.*gfx950"):
        module.wave_size("gfx9")


def test_a_broken_or_missing_template_is_refused(tmp_path):
    (tmp_path / "broken.j2").write_text("{{ specs.nothing }}")
    for name, reason in (("broken", "cannot be filled in"), ("none", "cannot be read")):
        with pytest.raises(UserError, match=rf"{name}\.j2.*{reason}"):
            render_python(SPECS, tmp_path / f"{name}.j2")
