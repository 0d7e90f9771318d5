"""The real hipcc."""

from real_hipcc import hip

__all__ = ["hip"]
