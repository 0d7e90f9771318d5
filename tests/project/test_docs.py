"""The documentation says what the code says: fields, columns, names, links, files and make targets."""

import ast
import re
from pathlib import Path

import pyarrow as pa
import pytest

import generated
from tileseer.core.errors import UserError
from tileseer.data.dataset_files import PAIRS
from tileseer.judge.evaluation import Evaluation
from tileseer.judge.layers import LAYERS
from tileseer.libraries.ck_tile import kernel
from tileseer.libraries.ck_tile.rules import RULES
from tileseer.measure import journal
from tileseer.measure.device import STATUSES
from tileseer.problems import problem_table

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src/tileseer"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
TOP = (
    ".ci/", "benchmarks/", "config/", "docs/", "envs/", "packages/", "profiles/", "src/", "tests/", "tools/",
    "workflow/",
)  # fmt: skip
KERNEL = re.compile(r"grouped_conv_(?:fwd|bwd_data|bwd_weight)_\w*\d+x\d+x\d+\w*")


def ids(paths):
    return [path.relative_to(ROOT).as_posix() for path in paths]


def section(page, heading):
    """Return the text below one second-level heading."""
    return page.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def table_rows(text):
    """Return (names in the first cell, second cell) of each row of the tables in ``text``."""
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    return [(re.findall(r"`([^`]+)`", row[0]), row[1].strip()) for row in rows]


def word(type_):
    """Return what the dataset page calls an Arrow type."""
    if pa.types.is_integer(type_):
        return "int"
    return "float" if pa.types.is_floating(type_) else "text"


def anchors(page):
    titles = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize(
    ("heading", "columns"), [("Dataset", problem_table.SCHEMA), ("Pairs", PAIRS), ("Journal", journal.SCHEMA)]
)
def test_every_column_is_documented_with_its_type_and_in_order(heading, columns):
    text = section((DOCS / "internals/data.md").read_text(), heading)
    said = [(name, type_) for names, type_ in table_rows(text) for name in names]
    assert said == [(field.name, word(field.type)) for field in columns]


def test_every_status_is_documented():
    rows = table_rows(section((DOCS / "internals/data.md").read_text(), "Statuses"))
    assert {name for names, _ in rows for name in names} == set(STATUSES)


def test_kernel_names_lists_every_word():
    page = section((DOCS / "internals/kernels.md").read_text(), "Kernel names")
    for word_ in (*kernel.PIPELINES, *kernel.EPILOGUES, *kernel.SCHEDULERS):
        assert f"`{word_}`" in page
    for word_ in (*kernel.SPECIALIZATIONS[1:], *(f"streamk_{name}" for name in kernel.STREAMK[1:])):
        assert f"`_{word_}`" in page
    for field in kernel.KERNEL_FIELDS[kernel.KERNEL_FIELDS.index("vec_a") :]:
        assert f"`{field}`" in page


def test_kernel_names_in_the_documentation_are_names():
    found = [name for path in PAGES for name in KERNEL.findall(path.read_text())]
    assert found
    for name in found:
        try:
            kernel.parse(name)
        except UserError as error:
            pytest.fail(str(error))


def test_the_architecture_page_has_every_stage_and_counts_the_rules():
    page = (DOCS / "internals/architecture.md").read_text()
    for path in (ROOT / "workflow/rules").glob("*.smk"):
        assert f"`{path.name}`" in page
    for path in (ROOT / "workflow/scripts").glob("*.py"):
        assert f"`{path.name}`" in page
    assert f"CK Tile: {len(RULES.every)}" in page


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_links_lead_somewhere(page):
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        assert not target.startswith(("/", "file:")), target
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{target}: there is no such file"
        assert not anchor or anchor in anchors(path), f"{target}: there is no such heading"


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_files_and_make_targets_that_are_named_exist(page):
    text = page.read_text()
    known = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"(?:^|`)make ([\w-]+)", text, re.MULTILINE):
        assert target in known, f"make {target}"
    for words in re.findall(r"`([^`\n]+)`", FENCE.sub("", text)):
        for path in words.split():
            if path.startswith(TOP) and not re.search(r"[*{<]", path):
                assert (ROOT / path.rstrip(":,")).exists(), path
    for test in re.findall(r"`(test_\w+)`", text):
        assert any(f"def {test}(" in path.read_text() for path in (ROOT / "tests").rglob("test_*.py")), test


def test_the_map_of_changes_leads_to_files_and_names_that_exist():
    text = section((DOCS / "CONTRIBUTING.md").read_text(), "Where do I change …?")
    rows = [line.split("|")[2] for line in text.splitlines()[4:] if line.startswith("|")]
    places = [place for row in rows for place in re.findall(r"`([\w./]+/[\w./]+)`((?:[:,] `\w+`)*)", row)]
    assert len(places) > len(rows) > 30
    for name, words in places:
        (path,) = [path for path in (ROOT / name, ROOT / "src/tileseer" / name) if path.exists()]
        for found in re.findall(r"\w+", words):
            assert path.is_file() and re.search(rf"\b{found}\b", path.read_text()), f"{name}: {found}"


def test_pages_that_the_code_names_exist():
    folders = ("src", "packages", "workflow", "config", "tools", "profiles", "tests")
    files = [
        path
        for folder in folders
        for kind in ("py", "smk", "yaml", "hpp")
        for path in ROOT.glob(f"{folder}/**/*.{kind}")
    ]
    named = {page for path in files for page in re.findall(r"docs/[a-zA-Z/-]+\.md", path.read_text())}
    assert len(named) > 10
    assert not {page for page in named if not (ROOT / page).is_file()}


def docstrings(path):
    """Return the texts of a module that are statements."""
    statements = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Expr)]
    return [node.value for node in statements if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_files_that_docstrings_name_exist():
    starts = "|".join(
        [folder.strip("./") for folder in TOP] + [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    )
    paths = re.compile(rf"(?<![\w/.])(?:{starts})/[\w./-]*\.\w+")
    texts = [text for folder in TOP for path in ROOT.glob(f"{folder}**/*.py") for text in docstrings(path)]
    named = {path for text in texts for path in paths.findall(text)}
    assert len(named) > 10
    assert not {path for path in named if not (ROOT / path).exists() and not (PACKAGE / path).exists()}


def test_schemas_and_generated_pages_are_those_of_the_code():
    assert not generated.stale(), "run: make schema"


def fields_of(schema: dict) -> set[str]:
    """Names of all fields of the JSON objects of a schema."""
    kinds = [schema, *schema["$defs"].values()]
    return {name for kind in kinds for name in kind.get("properties", {})}


def test_every_field_of_the_evaluation_is_documented():
    page = (DOCS / "internals/learning.md").read_text().split("\n## The evaluation\n")[1]
    fields = fields_of(Evaluation.model_json_schema()) | {*LAYERS.names}
    assert len(fields) > 40
    for field in fields:
        assert f"`{field}`" in page, field
    table = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    documented = {name for cell in table for name in re.findall(r"`(\w+)`", cell)}
    assert documented <= fields, documented - fields
