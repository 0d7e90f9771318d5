"""The C++ around CK Tile kernels from which the compiler makes their device code."""

from collections.abc import Sequence

from tileseer.kernels.gemm_kernel import Kernel

_PROBE = """\
namespace probe_{index} {{
// A type of its own gives every kernel a symbol of its own, also where the types are the same.
struct Probe : ns_{name}::{name}_Launcher::Kernel {{}};
void launch(const ns_{name}::{name}_Launcher::HostArgs& args)
{{
    ck_tile::make_kernel<ns_{name}::Config::kBlockPerCu>(Probe{{}}, dim3(), dim3(), 0, Probe::MakeKernelArgs(args))(
        ck_tile::stream_config{{}});
}}
}} // namespace probe_{index}
"""
_ADDING_PROBE = """\
namespace probe_{index} {{
// Slices of K are added by an instance of its own, which has to compile as well.
struct Adding : ns_{name}::{name}_Launcher::Adding {{}};
void add(const ns_{name}::{name}_Launcher::HostArgs& args)
{{
    ck_tile::make_kernel<ns_{name}::Config::kBlockPerCu>(Adding{{}}, dim3(), dim3(), 0, Adding::MakeKernelArgs(args))(
        ck_tile::stream_config{{}});
}}
}} // namespace probe_{index}
"""
_ADDING = "    using Adding = "


def device_source(kernels: Sequence[Kernel], headers: Sequence[str]) -> str:
    """C++ that instantiates kernel I with a type ``probe_I::Probe``, for the device pass."""
    probes = []
    for index, (kernel, header) in enumerate(zip(kernels, headers, strict=True)):
        probes.append(_PROBE.format(index=index, name=kernel.name))
        if _ADDING in header:
            probes.append(_ADDING_PROBE.format(index=index, name=kernel.name))
    return _includes(kernels) + "".join(probes)


def _includes(kernels: Sequence[Kernel]) -> str:
    return "".join(f'#include "{kernel.name}.hpp"\n' for kernel in kernels)
