"""Convolutions of a PyTorch model by the cuDNN plans that a published model picks.

``optimize`` replaces the convolutions of a module, ``Plans`` has what they run. Extra ``torch``.
"""

from tileseer.torch.modules import Optimized, optimize
from tileseer.torch.plans import Plans

__all__ = ["Optimized", "Plans", "optimize"]
