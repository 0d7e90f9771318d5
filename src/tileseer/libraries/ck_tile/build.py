"""The C++ around CK Tile kernels from which the compiler makes their device code."""

from collections.abc import Sequence
from functools import partial

from tileseer.libraries.gemm_kernel import Kernel

_PROBE = """\
namespace probe_{index} {{
// {why}
struct {probe} : ns_{name}::{name}_Launcher::{base} {{}};
void {function}(const ns_{name}::{name}_Launcher::HostArgs& args)
{{
    ck_tile::make_kernel<ns_{name}::Config::kBlockPerCu>({probe}{{}}, dim3(), dim3(), 0, {probe}::MakeKernelArgs(args))(
        ck_tile::stream_config{{}});
}}
}} // namespace probe_{index}
"""
_WHY_OWN_TYPE = "A type of its own gives every kernel a symbol of its own, also where the types are the same."
_WHY_ADDING = "Slices of K are added by an instance of its own, which has to compile as well."


def device_source(kernels: Sequence[Kernel], headers: Sequence[str]) -> str:
    """Return C++ that instantiates kernel I with a type ``probe_I::Probe``, for the device pass."""
    texts = [f'#include "{kernel.name}.hpp"\n' for kernel in kernels]
    for index, (kernel, header) in enumerate(zip(kernels, headers, strict=True)):
        probe = partial(_PROBE.format, index=index, name=kernel.name)
        texts.append(probe(probe="Probe", base="Kernel", function="launch", why=_WHY_OWN_TYPE))
        if "    using Adding = " in header:
            texts.append(probe(probe="Adding", base="Adding", function="add", why=_WHY_ADDING))
    return "".join(texts)
