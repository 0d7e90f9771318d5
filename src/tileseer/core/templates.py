"""What goes wrong with a Jinja2 template, told as a mistake that its author can repair."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jinja2

from tileseer.core.errors import UserError


def environment(folder: Path) -> jinja2.Environment:
    """Return what C++ templates of a folder are filled in with: a name that is not given is a mistake."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        auto_reload=False,
    )


@contextmanager
def mistakes_named(template: Path) -> Iterator[None]:
    """Turn what loading or filling in ``template`` raises into a ``UserError`` that names it."""
    try:
        yield
    except jinja2.TemplateSyntaxError as error:
        raise UserError(f"{template}:{error.lineno}: broken template: {error.message}") from error
    except (OSError, UnicodeDecodeError, jinja2.TemplateNotFound) as error:
        raise UserError(f"{template}: cannot be read ({error}); there has to be a template, in UTF-8") from error
    except jinja2.TemplateError as error:
        raise UserError(f"{template}: cannot be filled in: {error.message}") from error
