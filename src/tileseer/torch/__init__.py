"""One switch: the convolutions of a PyTorch program by the cuDNN plans that a model picks. Extra ``torch``."""

try:
    from tileseer.torch.switch import disable, enable, enabled, gains, save
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError("tileseer.torch needs PyTorch: pip install torch", name=error.name) from error

__all__ = ["disable", "enable", "enabled", "gains", "save"]


def __getattr__(name: str) -> None:
    """Say where PyTorch is to who takes this for it."""
    raise AttributeError(f"module 'tileseer.torch' has no attribute {name!r}; PyTorch is imported by: import torch")
