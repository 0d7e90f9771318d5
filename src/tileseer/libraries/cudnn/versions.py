"""Versions of cuDNN, and those of PyTorch that bring them."""

PYTORCH = {"2.11": "9.19", "2.12": "9.20", "2.13": "9.20", "2.14": "9.24"}
"""The cuDNN of each PyTorch: what the wheels of PyPI require (``Requires-Dist`` of torch 2.11.0, 2.12.0, 2.12.1,
2.13.0, 2.14.0 and 2.14.1 for Linux, with CUDA 13; read on 28 November 2026)."""


def advice_for(library: str | None) -> str:
    """Return how to come by a version of cuDNN, such as ``cudnn 91900``, or to do without it.

    PyTorch refuses a cuDNN older than that with which it was built, so what is named is the PyTorch that has it.
    """
    number = int(str(library).split()[-1])
    version = f"{number // 10000}.{number // 100 % 100}"
    found = [pytorch for pytorch, cudnn in PYTORCH.items() if cudnn == version]
    own = "measure the plans of your own cuDNN (docs/nvidia.md)"
    return f"PyTorch {found[-1]} brings cuDNN {version}: install torch=={found[-1]}.*, or {own}" if found else own
