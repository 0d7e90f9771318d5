"""The C++ around CK Tile kernels: their registration, their device code, and their own checks on the CPU."""

import re
from collections.abc import Sequence

from tileseer.families.ck_tile.kernel import KernelConfig

LAUNCHER = "ck_tile_kernel.hpp"
_NO_WORKSPACE = "0"
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
_INSTANCE = re.compile(
    r"using Kernel = typename Instance<true, TailNumber::(\w+), memory_operation_enum::set>::Kernel;"
)
_ADDING = "    using Adding = "
_PER_KERNEL = """
extern "C" int supports_{index}(const long* problem, int split_k)
{{
    return ns_{name}::{name}_Launcher::is_supported(param(problem, {ndim}), split_k);
}}

// three: blocks of the grid, threads of a block, bytes of the workspace.
extern "C" void launch_{index}(const long* problem, int split_k, long* three)
{{
    using Launcher = ns_{name}::{name}_Launcher;
    const auto shape = param(problem, {ndim});
    const typename Launcher::HostArgs args(shape, nullptr, nullptr, {{}}, nullptr, split_k);
    const dim3 grid  = Launcher::Kernel::GridSize(Launcher::Kernel::MakeKernelArgs(args));
    const dim3 block = Launcher::Kernel::BlockSize();
    three[0]         = long{{1}} * grid.x * grid.y * grid.z;
    three[1]         = long{{1}} * block.x * block.y * block.z;
    three[2]         = static_cast<long>({workspace});
}}
"""
_COMMON = """
namespace {

// problem: G, N, K and C of a group, then three axes each of filter, input, strides, dilations, pads.
ck_tile::conv::ConvParam param(const long* problem, int ndim)
{
    const auto axes = [&](int list) {
        const long* first = problem + 4 + 3 * list + (3 - ndim);
        return std::vector<ck_tile::long_index_t>(first, first + ndim);
    };
    return {ck_tile::long_index_t{ndim}, problem[0], problem[1], problem[2], problem[3],
            axes(0), axes(1), axes(2), axes(3), axes(4), axes(4)};
}

} // namespace
"""


def registration(kernel: KernelConfig) -> str:
    """The line that registers a kernel."""
    return (
        f"TILESEER_CK_KERNEL({kernel.name}, CONV_{kernel.variant.upper()}, {kernel.ndim}, CONV_{kernel.dtype.upper()})"
    )


def device_source(kernels: Sequence[KernelConfig], headers: Sequence[str]) -> str:
    """C++ that instantiates kernel I with a type ``probe_I::Probe``, for the device pass."""
    probes = []
    for index, (kernel, header) in enumerate(zip(kernels, headers, strict=True)):
        probes.append(_PROBE.format(index=index, name=kernel.name))
        if _ADDING in header:
            probes.append(_ADDING_PROBE.format(index=index, name=kernel.name))
    return _includes(kernels) + "".join(probes)


def instance(header: str) -> str:
    """Which of a kernel's instances ``device_source`` instantiates; empty if there is one alone."""
    found = _INSTANCE.search(header)
    return f"hot loop, tail {found[1]}, set" if found else ""


def host_source(kernels: Sequence[KernelConfig]) -> str:
    """C++ with ``supports_I`` and ``launch_I`` for kernel I."""
    checks = (
        _PER_KERNEL.format(index=i, name=kernel.name, ndim=kernel.ndim, workspace=_workspace(kernel))
        for i, kernel in enumerate(kernels)
    )
    return _includes(kernels) + _COMMON + "".join(checks)


def _includes(kernels: Sequence[KernelConfig]) -> str:
    return "".join(f'#include "{kernel.name}.hpp"\n' for kernel in kernels)


def _workspace(kernel: KernelConfig) -> str:
    """C++ expression of the workspace that a launch wants from its caller, bytes."""
    if kernel.streamk != "none":
        return "Launcher::workspace_bytes(args)"
    return "Launcher::workspace_bytes(shape)" if kernel.two_stage else _NO_WORKSPACE
