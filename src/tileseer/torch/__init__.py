"""One switch: the convolutions of a PyTorch program by the cuDNN plans that a model picks. Extra ``torch``."""

from tileseer.torch.switch import disable, enable, enabled, gains, save

__all__ = ["disable", "enable", "enabled", "gains", "save"]
