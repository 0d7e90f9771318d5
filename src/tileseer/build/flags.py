"""Options of the compilers: what kernels are measured with, and what a program is built with that ships them."""

from tileseer.build.compiler import NVCC, Vendor

_WARNINGS = ("-Wno-undefined-func-template", "-Wno-float-equal")
HIPCC_FLAGS = ("-O3", "-fPIC", "-D__HIP_PLATFORM_AMD__", "-mllvm", "-enable-noalias-to-md-conversion=0", *_WARNINGS)
"""The reference's flags, so that the code is the reference's."""
WITHOUT_ID = "-fuse-cuid=none"
HIP_FLAGS = ("-x", "hip", "-DTILESEER_HIP", WITHOUT_ID, *HIPCC_FLAGS)
# The warnings are about the kernel library's own headers.
CUDA_FLAGS = ("-O3", "-x", "cu", "-DTILESEER_CUDA", "-Xcompiler", "-fPIC", "--disable-warnings")


def arch_options(vendor: Vendor, arch: str) -> list[str]:
    """Return the options that ask for machine code of one arch, and of no other."""
    if vendor is NVCC:
        return ["-gencode", f"arch=compute_{arch.removeprefix('sm_')},code={arch}"]
    return [f"--offload-arch={arch}"]


def flags_of(vendor: Vendor) -> tuple[str, ...]:
    """Return the options of objects that have kernels, besides folders and arch."""
    return ("-std=c++17", *(CUDA_FLAGS if vendor is NVCC else HIP_FLAGS))


def program_flags(vendor: Vendor) -> tuple[str, ...]:
    """Return the options of a program that has kernels: its linker needs an id for each object."""
    return tuple(flag for flag in flags_of(vendor) if flag != WITHOUT_ID)
