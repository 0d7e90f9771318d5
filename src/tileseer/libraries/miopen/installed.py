"""``tileseer run --arch installed_miopen``: models of the MIOpen that is installed, from the times that it brings.

ROCm installs find-dbs in ``share/miopen/db``, and MIOpen's find step writes others below the home of its user. Names of
files have the GPU, those of a user's also MIOpen's version; of an installation ``include/miopen/version.h`` has it.
"""

import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from tileseer.core import documents
from tileseer.core.atomic import write_text
from tileseer.core.errors import UserError, shown
from tileseer.core.places import find_file
from tileseer.core.reading import read_bytes, read_utf8
from tileseer.data.dataset_files import FILE
from tileseer.data.provenance import Recording
from tileseer.facts import hardware
from tileseer.facts.hardware import Hardware
from tileseer.libraries.library import WAYS, Installed
from tileseer.libraries.miopen import recording
from tileseer.libraries.miopen.find_db import FileGpu, FileName, user_db
from tileseer.libraries.miopen.library import MIOPEN
from tileseer.libraries.miopen.solvers import Release, in_words

ROCM, DEFAULT_ROCM = "ROCM_PATH", "/opt/rocm"
SYSTEM_DB = "MIOPEN_SYSTEM_DB_PATH"
"""Variables that say where ROCm and its databases are; the second one is MIOpen's own."""
VERSION_HEADER = "include/miopen/version.h"
TABLE = "hardware.yaml"
_SYSTEM = re.compile(r"[a-z0-9_]+\.HIP\.fdb\.txt(\.bz2)?", re.ASCII)


class Found(NamedTuple):
    """The databases of one GPU."""

    user: list[Path]
    system: list[Path]

    @property
    def files(self) -> list[Path]:
        """All of them: what was measured on this machine goes first."""
        return [*self.user, *self.system]


def import_installed(folder: Path, gpu: str, table: Path) -> Installed:
    """Write a recording of each GPU below ``folder``, and a configuration that trains on them.

    ``gpu``: only this one, a target (gfx942) or the beginning of its files' names (gfx942130); empty: all.
    ``table``: the products. A recording whose files are those of the last call stays as it is. ``UserError`` without
    databases.
    """
    root = Path(os.environ.get(ROCM) or DEFAULT_ROCM).expanduser()
    system = Path(os.environ.get(SYSTEM_DB) or root / "share/miopen/db").expanduser()
    user = user_db(os.environ)
    found = _databases(system, user)
    if not found:
        raise UserError(
            f"no find-db of MIOpen is in {system}{'' if system.is_dir() else ' (no folder)'} or {user}; set "
            f"{ROCM} to the folder of ROCm (or {SYSTEM_DB} to that of its databases); without ROCm take recorded "
            "times: tileseer run --arch gfx942_miopen"
        )
    chosen = {one: files for one, files in found.items() if _is_named(one, files, gpu)}
    if not chosen:
        names = ", ".join(sorted({f"{one.arch} ({one.compute_units} compute units)" for one in found}))
        raise UserError(f"--gpu {shown(gpu)}: {system} and {user} have no find-db of it; they have {names}")
    release = _release(root, [path for files in found.values() for path in files.user])
    products = hardware.read_products(find_file(table))
    made, said = dict[str, Hardware](), list[str]()
    for one, files in chosen.items():
        product = recording.product_of_units(products, one.arch, one.compute_units)
        arch = f"{one.arch}_{one.compute_units}cu_{MIOPEN.name}"
        said += _record(folder / arch, arch, product, files, release)
        if (folder / arch / FILE).is_file():
            made[arch] = product
            _write_if_new(folder / arch / WAYS, "".join(f"{line}\n" for line in _ways(arch, files, root)))
    if not made:
        print(*said, sep="\n", file=sys.stderr)
        raise UserError(
            f"no GPU has {recording.FEWEST_PROBLEMS} problems of one operation in its find-dbs; measure more of them"
        )
    new = {product.name: product for product in made.values() if product.name not in products}
    config = {
        "arch": next(iter(made)),
        "operations": None,  # all that were measured
        "replays": {arch: (folder / arch).as_posix() for arch in made},
        "benchmark": {"products": {arch: product.name for arch, product in made.items()}},
    }
    if new:
        _write_if_new(folder / TABLE, hardware.table_with(find_file(table), new.values()))
        config["hardware"] = (folder / TABLE).as_posix()
    _write_if_new(folder / "config.yaml", yaml.safe_dump(config, sort_keys=False))
    return Installed(tuple(made), folder / "config.yaml", tuple(said))


def _databases(system: Path, user: Path) -> dict[FileGpu, Found]:
    """Return the databases of convolutions in two folders, by GPU, in the order of their names."""
    found: dict[FileGpu, Found] = {}

    def of(path: Path) -> Found | None:
        gpu = FileGpu.of(path.name)
        return gpu and found.setdefault(gpu._replace(features=""), Found([], []))

    for path in sorted(system.glob("*.HIP.fdb.txt*")) if system.is_dir() else ():
        # A packed file beside the same one that is not.
        if _SYSTEM.fullmatch(path.name) and not (path.suffix == ".bz2" and path.with_suffix("").exists()):
            (of(path) or Found([], [])).system.append(path)
    for path in sorted(user.glob("*.ufdb.txt")) if user.is_dir() else ():
        if FileName.is_one(path):
            (of(path) or Found([], [])).user.append(path)
    return dict(sorted(found.items()))


def _is_named(gpu: FileGpu, files: Found, asked: str) -> bool:
    names = [path.name.partition(".")[0] for path in files.files]
    return asked in ("", gpu.arch, *names, f"{gpu.arch}_{gpu.compute_units}cu_{MIOPEN.name}")


def _release(root: Path, users: Sequence[Path]) -> Release:
    """Return the version of the installation: of its header, else the newest of the users' files; empty if neither."""
    header = root / VERSION_HEADER
    text = read_bytes(header).decode(errors="replace") if header.is_file() else ""
    parts = (re.search(rf"MIOPEN_VERSION_{name}\s+([0-9]+)", text) for name in ("MAJOR", "MINOR", "PATCH"))
    numbers = [int(part[1]) for part in parts if part]
    if len(numbers) == 3:
        return tuple(numbers)
    return max((FileName.parse(path).release for path in users), default=())


def _record(folder: Path, arch: str, product: Hardware, files: Found, release: Release) -> Iterator[str]:
    """Write the recording of one GPU, unless it is there; yield what was done, in words."""
    of_version = [path for path in files.user if release in ((), FileName.parse(path).release)]
    for path in files.user:
        if path not in of_version:
            yield f"{path}: is of another version than {in_words(release)}, which is installed: left out"
    kept = [*of_version, *files.system]
    source = f"MIOpen find-db: {recording.digests(kept)}"
    taken = recording.taken_with(release)
    before = folder / FILE
    if before.is_file():
        own = documents.read_document(before, Recording)
        if (own.provenance.get("source"), own.taken, own.device) == (source, taken, product.name):
            yield f"{arch}: {folder} has the times of these files already"
            return
    unusable = list[str]()
    database = recording.read_find_dbs(kept, release, unusable)
    yield from (f"left out: {line}" for line in unusable)
    if gone := database.reasons().get(recording.GONE):
        yield f"{arch}: left out {gone:,} times: {recording.GONE}"
    timed = database.problems.iloc[database.times["problem"].unique()]
    counts = Counter((timed["variant"] + "_" + timed["dtype"]).tolist())
    small = {name: count for name, count in counts.items() if count < recording.FEWEST_PROBLEMS}
    if len(small) == len(counts):
        yield f"{arch}: left out, as no operation has {recording.FEWEST_PROBLEMS} problems: {_counted(counts)}"
        return
    if small:
        yield f"{arch}: left out with fewer than {recording.FEWEST_PROBLEMS} problems: {_counted(small)}"
    written = recording.write_solver_recording(
        folder, database, arch, product.name, {"source": source}, taken, leave_out=small, replace=True
    )
    yield (
        f"{arch}: {len(database.times):,} times of {taken.library} on {product.name} ({product.compute_units} compute "
        f"units), {len(written.operations)} models, from {', '.join(path.name for path in kept)}"
    )


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())) or "there is no time"


def _ways(arch: str, files: Found, root: Path) -> Iterator[str]:
    """Yield the commands that bring a model into programs on this machine."""
    models = f"results/models/{arch}"
    driver = root / "bin/MIOpenDriver"
    if driver.is_file():
        yield shlex.join(["tileseer", "tune", models, "--problems", "training.log", "--driver", str(driver)])
    system = ["--system", *map(str, files.system)] if files.system else []
    if files.user:
        user = str(max(files.user, key=lambda path: FileName.parse(path).release))
        call = ["tileseer", "export", "miopen", models, "--problems", "training.log", "--user", user, *system]
        yield shlex.join([*call, "--output", "miopen-db"])
    else:
        yield f"{arch}: run one convolution with MIOpen on this GPU; it writes the file that export takes as --user"


def _write_if_new(path: Path, text: str) -> None:
    """Write a file, unless it has this content."""
    if not path.is_file() or read_utf8(path) != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
