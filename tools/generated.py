"""Write what is made from the types and tables of the code: JSON schemas and pages of docs/generated (make schema)."""

from pathlib import Path

import configuration_page
import features_page
import schemas


def files() -> dict[Path, str]:
    """Every file with its text."""
    pages = {
        configuration_page.SCHEMA: configuration_page.json_schema(),
        configuration_page.PAGE: configuration_page.page(),
        features_page.PAGE: features_page.page(),
    }
    return pages | {schemas.FOLDER / name: text for name, text in schemas.pages().items()}


def stale() -> set[Path]:
    """Files that have another text by now, or that nothing makes any more."""
    wanted = files()
    kept = {path for path, text in wanted.items() if path.is_file() and path.read_text() == text}
    return {*wanted, *schemas.FOLDER.glob("*")} - kept


if __name__ == "__main__":
    texts = files()
    for path in stale():
        if path in texts:
            path.write_text(texts[path])
        else:
            path.unlink()
