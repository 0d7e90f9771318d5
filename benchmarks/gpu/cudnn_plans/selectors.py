"""Published models of cuDNN's plans as a program uses them: ``selector.hpp``, compiled once, behind one C function."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tileseer.conv.problem import DIMS
from tileseer.core.errors import UserError

SOURCE = """
#include "selector.hpp"
#include <cstring>
#include <string>

namespace model = tileseer::{operation}_sm_90_cudnn;

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
OWN = -1
"""The library's own choice."""


class Selectors:
    """The selectors of a folder of published models; each is compiled at its first use, into a folder of its own."""

    def __init__(self, models: Path, built: Path) -> None:
        self._models, self._built = models, built
        self._loaded: dict[str, ctypes.CDLL] = {}

    def choose(self, operation: str, dims: Sequence[int], offered: Sequence[str], library: str) -> int:
        """Place among the offered plans of the one to run, or ``OWN``."""
        if operation not in self._loaded:
            self._loaded[operation] = ctypes.CDLL(str(self.build(operation)))
        names = (ctypes.c_char_p * len(offered))(*(name.encode() for name in offered))
        numbers = (ctypes.c_int32 * len(dims))(*dims)
        return int(self._loaded[operation].choose(numbers, names, len(offered), library.encode()))

    def build(self, operation: str) -> Path:
        """The shared library of an operation's selector; compiled unless it is there."""
        path = self._built / f"{operation}.so"
        if path.exists():
            return path
        folder = self._models / f"grouped_conv_{operation}_sm_90_cudnn"
        if not (folder / "selector.hpp").is_file():
            raise UserError(f"{folder}: there is no selector.hpp; give the folder of the published models")
        self._built.mkdir(parents=True, exist_ok=True)
        text = SOURCE.format(operation=operation, dims=len(DIMS))
        own = path.with_suffix(f".{os.getpid()}.so")
        command = ["c++", "-std=c++17", "-O2", "-shared", "-fPIC", f"-I{folder}", "-x", "c++", "-", "-o", str(own)]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UserError(f"{folder}/selector.hpp does not compile: {done.stderr.strip()[:500]}")
        own.rename(path)
        return path
