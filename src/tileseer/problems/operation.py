"""Learning tasks: an operation is a direction and a data type, written ``forward_bf16``; it covers 2D and 3D."""

from dataclasses import dataclass
from typing import Self

from tileseer.core.errors import UserError, is_it
from tileseer.facts.operations import DTYPES, VARIANTS


@dataclass(frozen=True)
class Operation:
    """A direction and a data type."""

    variant: str
    dtype: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``forward_bf16``; a ``UserError`` names what is allowed."""
        variant, _, dtype = text.rpartition("_")
        if variant not in VARIANTS or dtype not in DTYPES:
            raise UserError(
                f"operation {text!r}: write DIRECTION_DTYPE with a direction of {', '.join(VARIANTS)} "
                f"and a dtype of {', '.join(DTYPES)}, for example forward_bf16"
                f"{is_it(text, [f'{variant}_{dtype}' for variant in VARIANTS for dtype in DTYPES])}"
            )
        return cls(variant, dtype)

    def __str__(self) -> str:
        return f"{self.variant}_{self.dtype}"
