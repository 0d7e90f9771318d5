"""Compilers, GPUs and packages of this machine that the workflow can use, and how to get the rest."""

import importlib.metadata
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tileseer.compile import compiler, trees
from tileseer.core.cache import open_cache
from tileseer.core.errors import UserError
from tileseer.core.lock import holder, lock_folder
from tileseer.families.registry import of_toolchain
from tileseer.settings.config import Config

PACKAGES = ("lightgbm", "pyarrow", "snakemake", "msgpack", "pyelftools")
KFD = Path("/dev/kfd")
KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")
NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")
_MIB = 2**20
CK, CUTLASS = (of_toolchain(name).part("api").LIBRARY for name in ("hipcc", "nvcc"))


@dataclass(frozen=True)
class Finding:
    """One looked-for thing."""

    subject: str
    status: str
    """ok, missing (something else works without it) or needed (the configuration asks for it)."""
    found: str
    fix: str = ""
    """What to do; empty where nothing is wrong."""


def findings(config: Config, api_table: Path) -> list[Finding]:
    """Everything that was looked for, in the order in which a build needs it."""
    compiles, cuda = (config.compile.toolchain == name for name in ("hipcc", "nvcc"))
    looks: list[tuple[str, bool, Callable[[], str]]] = [
        ("system", True, lambda: f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"),
        ("machine", True, lambda: _machine(config)),
        *((name, False, partial(_package, name)) for name in PACKAGES),
        ("HIP compiler", compiles, lambda: _compiler(config, compiler.HIPCC)),
        (CK.what, compiles, lambda: str(CK.find(config.ck.root))),
        ("CK API level", compiles, lambda: trees.ck_level(config.ck, api_table, True)),
        ("CK API level to emit", True, lambda: _level(config, api_table, compiles)),
        ("CUDA compiler", cuda, lambda: _compiler(config, compiler.NVCC)),
        (CUTLASS.what, cuda, lambda: str(CUTLASS.find(config.cutlass.root))),
        ("AMD GPU", config.benchmark.device == "hip", _amd_gpu),
        ("NVIDIA GPU", config.benchmark.device == "cuda", _nvidia_gpu),
        ("GPU lock", True, lambda: _lock(config)),
        ("cache", True, lambda: _cache(config)),
    ]
    found = {look[0]: _tried(*look) for look in looks}
    if found[CK.what].status != "ok":
        del found["CK API level"]
    return list(found.values())


def _tried(subject: str, needed: bool, look: Callable[[], str]) -> Finding:
    """What a look finds; its ``UserError`` says what is wrong and, after the last semicolon, what to do."""
    try:
        return Finding(subject, "ok", look())
    except UserError as error:
        found, _, fix = str(error).rpartition("; ")
        return Finding(subject, "needed" if needed else "missing", found, fix)


def _machine(config: Config) -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MIB
    disk = shutil.disk_usage(".").free // _MIB
    found = f"{os.cpu_count()} cores, {memory} MiB of memory, {disk} MiB free on this disk"
    if config.compile.toolchain != "none" and memory < config.compile.memory_mib:
        raise UserError(f"{found}; compile.memory_mib is {config.compile.memory_mib}: lower it")
    return found


def _package(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise UserError("not installed; make environment, or pip install 'tileseer[workflow]'") from None


def _compiler(config: Config, vendor: compiler.Vendor) -> str:
    # Without a toolchain, compile.compiler is hipcc, as everywhere.
    chosen = compiler.VENDORS.get(config.compile.toolchain, compiler.HIPCC)
    found = compiler.find_of(vendor, config.compile.compiler if vendor.program == chosen.program else None)
    release = next((line for line in found.version.splitlines() if "release" in line), found.version.splitlines()[0])
    return f"{found.path} ({found.origin}): {release}"


def _level(config: Config, api_table: Path, compiles: bool) -> str:
    try:
        return trees.ck_level(config.ck, api_table, compiles)
    except UserError:
        return f"{of_toolchain('hipcc').part('api').NEWEST} (no tree to look at)"


def _amd_gpu() -> str:
    targets = _kfd_targets(KFD_NODES)
    if not KFD.exists() or not targets:
        raise UserError(f"none: {KFD} or its GPU nodes are missing; for benchmark.device: hip, load the amdgpu driver")
    if not os.access(KFD, os.R_OK | os.W_OK):
        raise UserError(f"{', '.join(targets)}; join the group render")
    return ", ".join(targets)


def _kfd_targets(nodes: Path) -> list[str]:
    """The targets (gfx...) of the driver's nodes; a node of version 0 is a CPU."""
    found = []
    for path in sorted(nodes.glob("*/properties")):
        rows = dict(line.split(maxsplit=1) for line in path.read_text().splitlines() if " " in line)
        version = int(rows.get("gfx_target_version", "0"))
        if version:
            # 90402 is gfx942: two decimal digits each of minor and stepping, the stepping in hexadecimal.
            found.append(f"gfx{version // 10000}{version // 100 % 100}{version % 100:x}")
    return found


def _nvidia_gpu() -> str:
    count = len(list(NVIDIA_GPUS.glob("*")))
    if not count:
        raise UserError("none; for benchmark.device: cuda, load the nvidia driver")
    return str(count)


def _lock(config: Config) -> str:
    folder = lock_folder(config.lock.folder)
    holders = {path.stem: holder(path) for path in sorted(folder.glob("tileseer-*.lock"))}
    held = "; ".join(f"{name} held by {who}" for name, who in holders.items() if who) or "free"
    if not os.access(folder if folder.is_dir() else folder.parent, os.W_OK):
        raise UserError(f"{folder} cannot be written; set lock.folder to a folder that all its users can write")
    return f"{folder}: {held}"


def _cache(config: Config) -> str:
    stats = open_cache(config.cache.folder, config.cache.max_gib).stats()
    return f"{stats.folder}: {stats.entries} entries, {stats.bytes // _MIB} MiB"
