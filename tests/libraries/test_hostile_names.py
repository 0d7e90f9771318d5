"""Kernel names with numbers that no kernel has: refused with file and line, whatever form the name has."""

from __future__ import annotations

import re

import pytest

from tileseer.core.errors import UserError
from tileseer.serve import scoring

NAMES = (
    "grouped_conv_fwd_bf16_nhwgc_2d_compv6_cshuffle_intrawave_64x64x64_4x1x1_16x16x16@splitk4",
    "grouped_conv_forward_bf16_2d_64x64x64_compv3_intrawave_gm2",
    "libdispatcher_conv_forward_2d_bf16_64x64x64_4x1x1_16x16x16_compv3_intrawave.so",
)


@pytest.mark.parametrize("number", ["9" * 7, str(2**31), "9" * 19, str(2**64), "9" * 5000])
@pytest.mark.parametrize("name", NAMES)
def test_a_huge_number_in_a_kernel_name_is_refused_with_its_line(name, number, tmp_path):
    path = tmp_path / "kernels.txt"
    for place in re.finditer(r"(?<=[_x@k])\d+(?=[_x.@]|$)|(?<=gm)\d+|(?<=splitk)\d+", name):
        path.write_text(name[: place.start()] + number + name[place.end() :] + "\n")
        with pytest.raises(UserError, match=r"kernels\.txt, line 1"):
            scoring.read_kernels(path, scoring.read_kernel_names(path), "gfx950")
