"""A hook of MkDocs (``make docs``): a link that leaves docs/ is text."""

import posixpath
import re

from mkdocs.structure.pages import Page


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Write a link to a file outside docs/ as its words and path."""
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def replace(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[2]))
        return match[0] if path.startswith("docs/") else f"{match[1]} (`{path}`)"

    return re.sub(r"\[([^\]]*)\]\(([^)#:\s]+)(?:#[^)\s]*)?\)", replace, markdown)
