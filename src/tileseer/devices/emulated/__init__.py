"""A GPU whose kernels' machine code is executed on the CPU: to check results, never to time them.

The device is CDNA 2 to 4 (gfx90a, gfx942, gfx950); numpy computes the 64 lanes of a wave at once. ``docs/emulated.md``
says what is executed and how.
"""

import importlib.util

from tileseer.core.errors import UserError


def refuse_without_decoder() -> None:
    """``UserError`` if the decoder of instructions is not installed."""
    if importlib.util.find_spec("tinygrad") is None:
        raise UserError("tinygrad, which decodes instructions, is not installed; pip install 'tileseer[emulate]'")
