"""Compiled kernels of convolutions on the emulated GPU of ``amdgpu_emulator``, whose archs are ``ARCHS``."""

from amdgpu_emulator import ARCHS

__all__ = ["ARCHS"]
