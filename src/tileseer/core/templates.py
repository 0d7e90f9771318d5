"""Jinja2 templates, and mistakes in them as user errors.

What is filled in may come from files of others. So a C++ template prints plain words (names, types, numbers) and
nothing else, unless a filter says what a text is: ``quoted`` for a string literal, ``comment``, or ``code``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jinja2

from tileseer.core.errors import UserError, printed, shown

_PLAIN_WORDS = re.compile(r"(?!.*//)[A-Za-z0-9_:<>,./+ -]*")
"""Names, types, numbers, paths and lists of them."""
_LINE_OF_CODE = re.compile(r"(?!.*(?://|/\*))[A-Za-z0-9_:<>,./+ (){}\[\]=!?&|*%;-]*")
"""Expressions and statements of one line, without strings and comments."""


class Written(str):
    """Text that may stand in a file as it is."""

    __slots__ = ()


def quoted(value: str) -> Written:
    """Return a C++ string literal of any text; what is no printable ASCII is an escape."""
    return Written(f'"{"".join(map(_character, str(value).encode("utf-8", "replace")))}"')


def _character(byte: int) -> str:
    # Two question marks may begin a trigraph.
    if chr(byte) in '\\"?':
        return f"\\{chr(byte)}"
    return chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"


def comment(value: str) -> Written:
    """Return a text for a comment: it cannot end the comment, nor continue it on the next line."""
    return Written(re.sub(r"[^ -~]|[\\?*]", "_", str(value)))


def code(value: str) -> Written:
    """Return C++ that Tileseer made; that nothing else is in it is checked."""
    return _checked(value, _LINE_OF_CODE)


def _printed(value: object) -> object:
    """Return what a template prints without a filter."""
    return value if isinstance(value, (int, Written)) else _checked(str(value), _PLAIN_WORDS)


def _checked(text: str, allowed: re.Pattern[str]) -> Written:
    if not allowed.fullmatch(text):
        raise jinja2.TemplateRuntimeError(f"{shown(text)} cannot be written into C++ unchanged")
    return Written(text)


def environment(*folders: Path) -> jinja2.Environment:
    """Return the environment of the templates of folders: a name without a value is a mistake."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        auto_reload=False,
    )


def cpp_environment(*folders: Path) -> jinja2.Environment:
    """Return the environment of the C++ templates of folders: text that is no plain word needs a filter."""
    made = environment(*folders).overlay(finalize=_printed)
    made.filters = made.filters | {"quoted": quoted, "comment": comment, "code": code}
    return made


@contextmanager
def mistakes_named(template: Path) -> Iterator[None]:
    """Turn a fault in loading or filling in ``template`` into a ``UserError`` that names it."""
    try:
        yield
    except jinja2.TemplateSyntaxError as error:
        raise UserError(f"{template}:{error.lineno}: broken template: {error.message}") from error
    except (OSError, UnicodeDecodeError, jinja2.TemplateNotFound) as error:
        raise UserError(f"{template}: cannot be read ({error}); there has to be a template, in UTF-8") from error
    except jinja2.TemplateError as error:
        raise UserError(f"{template}: cannot be filled in: {error.message}") from error


def fill_template(template: Path, **values: object) -> str:
    """Return the text of a template with some values; a fault in it is a ``UserError``."""
    with mistakes_named(template):
        return environment(template.parent).get_template(template.name).render(values)


def fill_markdown_template(template: Path, **values: object) -> str:
    """Return the text of a Markdown template; no value becomes HTML, a link, another cell or another paragraph."""
    with mistakes_named(template):
        made = environment(template.parent).overlay(finalize=_of_markdown)
        return made.get_template(template.name).render(values)


def _of_markdown(value: object) -> object:
    if isinstance(value, (int, Written)):
        return value
    text = re.sub(r"\s", " ", printed(str(value)))
    return re.sub(r"[&<>\"`|*\[\]\\]", lambda sign: f"&#{ord(sign[0])};", text)


def fill_cpp_template(template: Path, *more: Path, **values: object) -> str:
    """Return the text of a C++ template with some values; a fault in it is a ``UserError``.

    ``more``: folders of templates that it extends.
    """
    with mistakes_named(template):
        return cpp_environment(template.parent, *more).get_template(template.name).render(values)
