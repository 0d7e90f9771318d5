"""What the documentation site adds to the pages of docs/: navigation, API reference, command line, linked sources.

A hook of MkDocs, named in mkdocs.yml; ``make docs`` runs it.
"""

import io
import os
import posixpath
import re
from contextlib import redirect_stdout, suppress
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tileseer.cli import main

ROOT = Path(__file__).parents[1]
FIRST = "tutorial.md"
"""The page that leads the navigation, behind the README as the first page."""
_LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)\s]*)?\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List every page of docs/ in its section, so that a new page needs no entry anywhere."""
    docs = Path(config.docs_dir)
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    folders = {
        name: sorted(page for page in pages if page.startswith(f"{name}/")) for name in ("internals", "generated")
    }
    config.nav = [
        "index.md",
        FIRST,
        *sorted(page for page in pages - {FIRST} if "/" not in page),
        {"Command line": ["reference/command-line.md"]},
        {"Internals": folders["internals"]},
        {"Tables": folders["generated"]},
        {"Python": [f"reference/{room}.md" for room in _rooms()]},
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code, and the files outside docs/ that pages link to."""
    for room, modules in _rooms().items():
        parts = "\n\n".join(f"::: {name}" for name in modules)
        files.append(File.generated(config, f"reference/{room}.md", content=f"# {room}\n\n{parts}\n"))
    files.append(File.generated(config, "reference/command-line.md", content=_command_line()))
    files.append(File.generated(config, "index.md", content=_index()))
    shim = Path(__file__).with_name("iframe-worker.js")
    files.append(File.generated(config, "assets/iframe-worker.js", content=shim.read_bytes()))
    for outside in _outside_files(files, Path(config.docs_dir)):
        content = (ROOT / outside).read_bytes()
        files.append(File.generated(config, _copy_of(outside), content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Point links that leave docs/ at the copies."""
    folder = posixpath.dirname(page.file.src_uri)

    def replace(match: re.Match[str]) -> str:
        outside = _outside(folder, match[2])
        if not outside:
            return match[0]
        return f"{match[1]}{posixpath.relpath(_copy_of(outside), folder or '.')})"

    return _LINK.sub(replace, markdown)


def _index() -> str:
    """The README, whose links lead from docs/."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return _LINK.sub(lambda found: f"{found[1]}{posixpath.relpath(found[2], 'docs')}{found[3]}", readme)


def _rooms() -> dict[str, list[str]]:
    """The modules of each room of the package: a page a room keeps the site small."""
    source = ROOT / "src"
    paths = (path.relative_to(source).with_suffix("") for path in sorted(source.rglob("*.py")))
    rooms: dict[str, list[str]] = {}
    for path in paths:
        if path.name != "__init__" and len(path.parts) > 1:
            rooms.setdefault(".".join(path.parts[:2]), []).append(".".join(path.parts))
    return rooms


def _outside_files(files: Files, docs: Path) -> list[str]:
    found = {_outside("", link) for _, link, _ in _LINK.findall(_index())}
    for file in files.documentation_pages():
        if file.abs_src_path and Path(file.abs_src_path).is_relative_to(docs):
            links = _LINK.findall(Path(file.abs_src_path).read_text(encoding="utf-8"))
            found |= {_outside(posixpath.dirname(file.src_uri), link) for _, link, _ in links}
    return sorted(found - {""})


def _outside(folder: str, link: str) -> str:
    """The path, from the root of the repository, of a linked file outside docs/; "" for any other link."""
    path = posixpath.normpath(posixpath.join("docs", folder, link))
    return "" if path.startswith(("docs/", "..")) or not (ROOT / path).is_file() else path


def _copy_of(outside: str) -> str:
    # As text: a browser shows it, and MkDocs does not take it for one of its own pages.
    return str(PurePosixPath("files", outside + ".txt"))


def _command_line() -> str:
    parts = ["# Command line", "```text", _help([]), "```"]
    for name in sorted(main.COMMANDS):
        parts += [f"## tileseer {name}", "```text", _help([name]), "```"]
    return "\n\n".join(parts).replace("```text\n\n", "```text\n").replace("\n\n```", "\n```")


def _help(arguments: list[str]) -> str:
    os.environ["COLUMNS"] = "100"
    text = io.StringIO()
    with redirect_stdout(text), suppress(SystemExit):
        main.main([*arguments, "--help"])
    return text.getvalue().rstrip()
