"""What goes wrong with a Jinja2 template, told as a mistake that its author can repair."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jinja2

from tilewright.errors import UserError


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
