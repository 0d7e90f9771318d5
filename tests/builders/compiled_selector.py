"""The published selector of cuDNN's plans as a program uses it: ``selector.hpp``, compiled behind one C function."""

from __future__ import annotations

import ctypes
import subprocess

from host_library import COMPILER

from tileseer.problems.problem import DIMS

SOURCE = """
#include "selector.hpp"
#include <cstring>
#include <string>

namespace model = tileseer::{namespace};

extern "C" int choose(const std::int32_t* dims, const char* const* names, int count, const char* library)
{{
    static model::Selector selector;
    model::Problem problem;
    static_assert(sizeof problem == {dims} * sizeof(std::int32_t));
    std::memcpy(&problem, dims, sizeof problem);
    const std::vector<std::string_view> offered(names, names + count);
    const model::Pick pick = selector.choose(problem, offered, library);
    for(int place = 0; pick.candidate && place < count; ++place)
    {{
        const std::string_view kernel = pick.candidate->kernel;
        const std::string end         = "d_" + std::string(offered[place]);
        if(kernel.size() > end.size() && kernel.substr(kernel.size() - end.size()) == end)
            return place;
    }}
    return -1;
}}
"""
OWN_CHOICE = -1


def compiled_selector(header_folder, namespace, output):
    """Return a function from dimensions, offered plans and library to the place of the pick, or ``OWN_CHOICE``."""
    text = SOURCE.format(namespace=namespace, dims=len(DIMS))
    command = [COMPILER, "-std=c++17", "-O2", "-shared", "-fPIC", f"-I{header_folder}", "-x", "c++", "-", "-o", output]
    subprocess.run(list(map(str, command)), input=text, check=True, text=True)
    library = ctypes.CDLL(str(output))

    def choose(dims, offered, version):
        names = (ctypes.c_char_p * len(offered))(*(name.encode() for name in offered))
        return library.choose((ctypes.c_int32 * len(dims))(*dims), names, len(offered), version.encode())

    return choose
