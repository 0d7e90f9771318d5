"""Which pairs the compiled library itself would run: its host-side checks, asked on the CPU."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from tileseer.compile.base import CompileUnit
from tileseer.compile.host_check import HostCompiler
from tileseer.conv import problem as problem_tables
from tileseer.core.errors import UserError
from tileseer.families.registration import header_file
from tileseer.families.registry import parse


def verdicts(
    problems: pd.DataFrame, candidates: pd.DataFrame, headers: Mapping[str, bytes], arch: str, host: HostCompiler
) -> np.ndarray:
    """Which of P problems the library runs with each of Q candidates, bool [P, Q]; False without a build.

    ``candidates`` have ``kernel``, ``split_k`` and ``build_status``; ``headers`` is the bundle of their chunk.
    """
    built = candidates[(candidates["build_status"] == "ok").to_numpy()]
    kernels = list(dict.fromkeys(built["kernel"]))
    splits = sorted(set(built["split_k"].tolist()))
    parsed = parse(kernels)
    missing = [kernel.name for kernel in parsed if header_file(kernel) not in headers]
    if missing:
        raise UserError(f"the bundle of headers has none for {missing[0]}; delete it and run again")
    units = [CompileUnit(kernel, arch, headers[header_file(kernel)]) for kernel in parsed]
    asked = host.verdicts(units, problem_tables.from_frame(problems), splits)
    kernel, split = {name: i for i, name in enumerate(kernels)}, {value: i for i, value in enumerate(splits)}
    found = np.zeros((len(problems), len(candidates)), bool)
    for position in np.flatnonzero((candidates["build_status"] == "ok").to_numpy()):
        row = candidates.iloc[position]
        found[:, position] = asked[split[int(row["split_k"])], :, kernel[row["kernel"]]]
    return found
