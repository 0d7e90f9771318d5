"""Versions of cuDNN, and the Python packages that have them."""


def package_of_version(library: str | None, cuda: str | None = None) -> str:
    """Return what to install for a version of cuDNN: of ``cudnn 91900``, ``nvidia-cudnn-cu13==9.19.0.*``.

    ``cuda`` is PyTorch's version of CUDA, such as 12.8; None: 13.
    """
    number = int(str(library).split()[-1])
    version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    return f"nvidia-cudnn-cu{(cuda or '13').partition('.')[0]}=={version}.*"
