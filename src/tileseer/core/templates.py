"""Jinja2 templates: mistakes in them as user errors, and texts that are filled in once a *form*.

Most kernels of a library differ in numbers and name alone. So the text of a form is rendered with a leaf in place of
each such value and cut at the leaves (``Skeleton``); a kernel of the form is then one join.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import jinja2

from tileseer.core.errors import UserError

_CUT = "\x1f"


def environment(folder: Path) -> jinja2.Environment:
    """Environment of the C++ templates of a folder: a name without a value is a mistake."""
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
    """Text of a template with some values; a fault in it is a ``UserError``."""
    with mistakes_named(template):
        return environment(template.parent).get_template(template.name).render(values)


class Leaf(str):
    """Stands in a rendered text for a value that may be printed, but decides nothing: the text would not follow it."""

    __slots__ = ()

    def __new__(cls, name: str) -> Leaf:
        """Make the leaf called ``name``."""
        return super().__new__(cls, f"{_CUT}{name}{_CUT}")

    def _refuse(self, *_: object) -> bool:
        raise jinja2.TemplateRuntimeError(
            f"{self.strip(_CUT)} decides something here, but a template may only print it; "
            "make it part of the form (src/tileseer/kernels/ck_tile/emit.py)"
        )

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __mul__ = __mod__ = __rmul__ = __int__ = __contains__ = _refuse  # type: ignore[assignment]
    __hash__ = str.__hash__


class Skeleton:
    """The text of a form."""

    def __init__(self, text: str, leaves: Sequence[str]) -> None:
        """Cut ``text`` at its leaves; ``leaves`` gives the order in which ``filled`` takes their values."""
        pieces = text.split(_CUT)
        place = {name: index for index, name in enumerate(leaves)}
        self._pieces = pieces
        self._order = [place[name] for name in pieces[1::2]]

    def filled(self, values: Sequence[str]) -> str:
        """Text with ``values`` in place of the leaves."""
        pieces = self._pieces.copy()
        pieces[1::2] = [values[index] for index in self._order]
        return "".join(pieces)
