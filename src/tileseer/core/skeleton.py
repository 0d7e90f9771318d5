"""Templates filled in once a *form* of kernel, then copied with the kernel's own sizes.

Most kernels of a library differ in numbers and name alone. The text of a form is rendered with a leaf in place of
each such value and cut at the leaves; a kernel of the form is then one join. A leaf is for printing: a template that
decides by one is told so, because the text would not follow the value.
"""

from __future__ import annotations

from collections.abc import Sequence

import jinja2

_CUT = "\x1f"


class Leaf(str):
    """Stands in a rendered text for a value that is printed and nothing else."""

    __slots__ = ()

    def __new__(cls, name: str) -> Leaf:
        """Make the leaf called ``name``."""
        return super().__new__(cls, f"{_CUT}{name}{_CUT}")

    def _refuse(self, *_: object) -> bool:
        raise jinja2.TemplateRuntimeError(
            f"{self.strip(_CUT)} decides something here, but a template may only print it; "
            "make it part of the form (src/tileseer/families/ck_tile/emit.py)"
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
        """Return the text with ``values`` in place of the leaves."""
        pieces = self._pieces.copy()
        pieces[1::2] = [values[index] for index in self._order]
        return "".join(pieces)
