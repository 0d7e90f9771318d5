"""fake_hipcc that also makes libraries, with the host's compiler: kernels that compute on the host and tell their time.

What the worker, its supervisor, verification and the driver do with them is what they do on a GPU. Kernels with a tile
of 32x128 compute one element wrong; those of pipeline mem with a tile of 64x128 crash.
"""

from __future__ import annotations

import re
import subprocess
import zlib
from pathlib import Path

import fake_hipcc

HEAD = """
#include "host_runtime.hpp"

#include "driver.hpp"

#include <csignal>

using namespace tileseer;

template <typename D>
struct Host
{
    static constexpr const char* name = D::name;
    static constexpr int direction = CONV_FORWARD, ndim = D::ndim, dtype = CONV_BF16;
    static bool supports(const ConvProblemC&, std::string&) { return true; }
    static std::int64_t workspace_bytes(const ConvProblemC&) { return 0; }
    static ConvResourcesC resources() { return unknown_resources(); }
    static void launch(const ConvProblemC& problem, const Tensors& t)
    {
        if(D::crashes)
        {
            std::raise(SIGSEGV);
        }
        const Shape shape(problem);
        const Sizes sizes(problem);
        auto* c = static_cast<Bf16::Bits*>(t.c);
        for(std::int64_t i = 0; i < sizes.c; ++i)
        {
            float value = 0;
            ForwardReference<Bf16>{shape, static_cast<const Bf16::Bits*>(t.a), static_cast<const Bf16::Bits*>(t.b),
                                   &value - i, 1}(i);
            c[i] = Bf16::from_float(value);
        }
        if(D::is_wrong)
        {
            c[0] = Bf16::from_float(1e6F);
        }
        host_clock(t).now += 20 + D::rate * static_cast<double>(sizes.c);
    }
};
"""
KERNEL = """
namespace {{
struct D{number}
{{
    static constexpr const char* name = "{name}";
    static constexpr int ndim         = {ndim};
    static constexpr double rate      = {rate};
    static constexpr bool crashes = {crashes}, is_wrong = {is_wrong};
}};
const Registration<Host<D{number}>> registration_{number};
}}
"""


def main(arguments: list[str]) -> int:
    # The driver of the emulated GPU is that of the host as well, without the stand-in for the HIP runtime.
    emulated = "-DTILESEER_EMULATED" in arguments
    passes = {"assembler", "--cuda-device-only", "--cuda-host-only"} & set(arguments)
    if arguments == ["--version"] or (passes and not emulated):
        return fake_hipcc.main(arguments)
    output = arguments[arguments.index("-o") + 1]
    if "-c" in arguments:
        native = arguments[arguments.index("-I") + 1]
        Path("host.cpp").write_text(source(Path("unit.cpp").read_text()))
        return host("-O2", f"-I{native}", "-c", "host.cpp", "-o", output)
    if "--hip-link" in arguments:
        return host("-shared", *(word for word in arguments if word.endswith(".o")), "-o", output)
    left_out = ("-x", "hip", "--cuda-host-only", "-D__HIP_PLATFORM_AMD__")
    kept = (word for word in arguments if word not in left_out and not word.startswith("--offload-arch"))
    kept = (word for word in kept if not word.endswith("hip_stand_in.cpp"))
    return host(*(re.sub("-DTILESEER_(HIP|EMULATED)", "-DTILESEER_HOST", word) for word in kept))


def source(unit: str) -> str:
    text = HEAD
    for number, (name, ndim) in enumerate(
        re.findall(r"TILESEER_CK_KERNEL\((\w+), CONV_FORWARD, (\d), CONV_BF16\)", unit)
    ):
        words = {True: "true", False: "false"}
        text += KERNEL.format(
            number=number, name=name, ndim=ndim, rate=0.01 + zlib.crc32(name.encode()) % 7 / 100,
            crashes=words["_mem_" in name and "_64x128x" in name], is_wrong=words["_32x128x" in name],
        )  # fmt: skip
    return text


def host(*arguments: str) -> int:
    return subprocess.run(["c++", "-std=c++17", "-fPIC", *arguments], check=False).returncode
