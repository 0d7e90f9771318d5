"""A hook of MkDocs (``make docs``): the README is the first page, and a link that leaves docs/ is text."""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

README = Path(__file__).parents[1] / "README.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README, with links that lead from docs/."""
    text = re.sub(r"\]\((?!docs/|\w+:|#)", "](../", README.read_text(encoding="utf-8"))
    files.append(File.generated(config, "index.md", content=text.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Write a link to a file outside docs/ as its words and path."""
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def replace(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[2]))
        return match[0] if path.startswith("docs/") else f"{match[1]} (`{path}`)"

    return re.sub(r"\[([^\]]*)\]\(([^)#:\s]+)(?:#[^)\s]*)?\)", replace, markdown)
