"""Compilers, GPUs and packages of this machine that the workflow can use, and how to get the rest."""

import importlib.metadata
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tileseer.compile import ck_tree, compiler, cutlass_tree
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
    tree = _tried("Composable Kernel tree", compiles, lambda: str(ck_tree.find(config.ck)))
    return [
        Finding("system", "ok", f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"),
        _resources(config),
        *(_package(name) for name in PACKAGES),
        _tried("HIP compiler", compiles, lambda: _compiler(config, compiler.HIPCC)),
        tree,
        *([_tried("CK API level", compiles, lambda: ck_tree.level(config.ck, api_table, True))] if _ok(tree) else []),
        Finding("CK API level to emit", "ok", _level(config, api_table, compiles)),
        _tried("CUDA compiler", cuda, lambda: _compiler(config, compiler.NVCC)),
        _tried("CUTLASS headers", cuda, lambda: str(cutlass_tree.find(config.cutlass))),
        _amd_gpu(config),
        _nvidia_gpu(config),
        _lock(config),
        _cache(config),
    ]


def _ok(finding: Finding) -> bool:
    return finding.status == "ok"


def _tried(subject: str, needed: bool, look: Callable[[], str]) -> Finding:
    try:
        return Finding(subject, "ok", look())
    except UserError as error:
        found, _, fix = str(error).rpartition("; ")
        return Finding(subject, "needed" if needed else "missing", found, fix)


def _compiler(config: Config, vendor: compiler.Vendor) -> str:
    # Without a toolchain, compile.compiler is hipcc, as everywhere.
    chosen = compiler.VENDORS.get(config.compile.toolchain, compiler.HIPCC)
    found = compiler.find_of(vendor, config.compile.compiler if vendor.program == chosen.program else None)
    release = next((line for line in found.version.splitlines() if "release" in line), found.version.splitlines()[0])
    return f"{found.path} ({found.origin}): {release}"


def _level(config: Config, api_table: Path, compiles: bool) -> str:
    try:
        return ck_tree.level(config.ck, api_table, compiles)
    except UserError:
        return f"{of_toolchain('hipcc').part('api').NEWEST} (no tree to look at)"


def _resources(config: Config) -> Finding:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MIB
    disk = shutil.disk_usage(".").free // _MIB
    found = f"{os.cpu_count()} cores, {memory} MiB of memory, {disk} MiB free on this disk"
    if config.compile.toolchain != "none" and memory < config.compile.memory_mib:
        return Finding("machine", "needed", found, f"compile.memory_mib is {config.compile.memory_mib}: lower it")
    return Finding("machine", "ok", found)


def _package(name: str) -> Finding:
    try:
        return Finding(name, "ok", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "missing", "not installed", "make environment, or pip install 'tileseer[workflow]'")


def _amd_gpu(config: Config) -> Finding:
    needed = config.benchmark.device == "hip"
    targets = _kfd_targets(KFD_NODES)
    if not KFD.exists() or not targets:
        fix = "load the amdgpu driver; until then benchmark.device: simulated" if needed else ""
        return Finding("AMD GPU", "needed" if needed else "missing", f"none: {KFD} or its GPU nodes are missing", fix)
    if not os.access(KFD, os.R_OK | os.W_OK):
        return Finding("AMD GPU", "needed" if needed else "missing", ", ".join(targets), "join the group render")
    return Finding("AMD GPU", "ok", ", ".join(targets))


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


def _nvidia_gpu(config: Config) -> Finding:
    needed = config.benchmark.device == "cuda"
    count = len(list(NVIDIA_GPUS.glob("*"))) if NVIDIA_GPUS.is_dir() else 0
    if count:
        return Finding("NVIDIA GPU", "ok", f"{count}")
    fix = "load the nvidia driver; until then benchmark.device: simulated" if needed else ""
    return Finding("NVIDIA GPU", "needed" if needed else "missing", "none", fix)


def _lock(config: Config) -> Finding:
    folder = lock_folder(config.lock.folder)
    notes = sorted(folder.glob("*.holder.json")) if folder.is_dir() else []
    held = "; ".join(f"{note.name.removesuffix('.holder.json')} {holder(note)}" for note in notes) or "free"
    place = folder if folder.is_dir() else folder.parent
    if os.access(place, os.W_OK):
        return Finding("GPU lock", "ok", f"{folder}: {held}")
    fix = "set lock.folder to a folder that all its users can write"
    return Finding("GPU lock", "needed", f"{folder} cannot be written", fix)


def _cache(config: Config) -> Finding:
    try:
        stats = open_cache(config.cache.folder, config.cache.max_gib).stats()
    except UserError as error:
        return Finding("cache", "needed", str(error), "correct cache.folder")
    return Finding("cache", "ok", f"{stats.folder}: {stats.entries} entries, {stats.bytes // _MIB} MiB")
