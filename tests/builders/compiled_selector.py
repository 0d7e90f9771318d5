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

extern "C" int shortlist(
    const std::int32_t* dims, const char* const* names, int count, const char* library, int listed, int* places,
    double* scores)
{{
    static model::Selector selector;
    model::Problem problem;
    std::memcpy(&problem, dims, sizeof problem);
    std::vector<model::Pick> list(listed + 1);
    const std::size_t found =
        selector.shortlist(problem, std::vector<std::string_view>(names, names + count), library, list.data(), listed);
    for(std::size_t place = 0; place < found; ++place)
    {{
        places[place] = static_cast<int>(list[place].offered);
        scores[place] = list[place].score;
        if(list[place].candidate && model::Selector::named(list[place].candidate->kernel) != list[place].candidate)
            return -1;
    }}
    return static_cast<int>(found);
}}
"""
OWN_CHOICE = -1


def compiled_selector(header_folder, namespace, output):
    """Two functions of dimensions, offered plans and library: the place of the pick, or ``OWN_CHOICE``; the short list.

    The short list takes its length as well, and has the place and the score of each plan.
    """
    text = SOURCE.format(namespace=namespace, dims=len(DIMS))
    command = [COMPILER, "-std=c++17", "-O2", "-shared", "-fPIC", f"-I{header_folder}", "-x", "c++", "-", "-o", output]
    subprocess.run(list(map(str, command)), input=text, check=True, text=True)
    library = ctypes.CDLL(str(output))

    def arguments(dims, offered, version):
        names = (ctypes.c_char_p * len(offered))(*(name.encode() for name in offered))
        return (ctypes.c_int32 * len(dims))(*dims), names, len(offered), version.encode()

    def choose(dims, offered, version):
        return library.choose(*arguments(dims, offered, version))

    def shortlist(dims, offered, version, count):
        places, scores = (ctypes.c_int * (count + 1))(), (ctypes.c_double * (count + 1))()
        found = library.shortlist(*arguments(dims, offered, version), count, places, scores)
        assert found > 0
        return list(zip(places[:found], scores[:found], strict=True))

    return choose, shortlist
