"""The support stage: which pairs of one chunk's kernels and the problems can run."""

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from tileseer.compile import registry
from tileseer.compile.build import SCHEMA as BUILD
from tileseer.compile.host_check import HostCompiler
from tileseer.conv.operation import Operation
from tileseer.core import bundle, parquet
from tileseer.core.errors import UserError
from tileseer.core.stage import Settings
from tileseer.families import candidates
from tileseer.gpu import hardware as products
from tileseer.problems import problem_table
from tileseer.settings.compile import SupportSettings
from tileseer.support import library_support, support_table


class Library(NamedTuple):
    """What the library's own checks need: bundle of the chunk, folder of ``hip_stand_in.cpp``, a table to write."""

    headers: Path | None
    native: Path | None
    disagreements: Path | None


def decide(
    arch: str,
    operation: str,
    build: Path,
    problems: Path,
    hardware: Path,
    product: str,
    library: Library,
    settings: Settings,
) -> pa.Table:
    """Support table of a chunk, by our rules or by the library; where the two differ is a second table."""
    entries = parquet.read(problems, problem_table.SCHEMA).to_pandas()
    built = candidates.from_build(parquet.read(build, BUILD))
    wave_size = products.get(hardware, product).wave_size
    direction = Operation.parse(operation).variant
    verdicts = None
    if SupportSettings.of(settings, "support").source == "library":
        headers, native, differing = library
        if headers is None or native is None or differing is None:
            raise UserError("support.source is library: give --headers, --native and --disagreements")
        host = HostCompiler(*registry.parts(settings, arch, native))
        verdicts = library_support.verdicts(entries, built, bundle.read(headers), arch, host)
        differ = support_table.disagreements(entries, built, direction, wave_size, verdicts)
        parquet.write(differ, differing)
        print(f"the library and our rules differ on {differ.num_rows:,} pairs")
    return support_table.table(entries, built, direction, wave_size, verdicts)
