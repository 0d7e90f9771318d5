"""Compilers, GPUs and packages of this machine that the workflow can use, and how to get the rest."""

import getpass
import importlib
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tileseer.compile import compiler, trees
from tileseer.core import cluster, modules
from tileseer.core.cache import open_cache
from tileseer.core.errors import UserError
from tileseer.core.lock import holder, lock_folder
from tileseer.devices.harness.telemetry import LIBRARIES, boards, refuse_other_gpus
from tileseer.devices.harness.visible import VARIABLES, amd_gpus
from tileseer.families.library import rocm_folders
from tileseer.families.registry import of_toolchain
from tileseer.settings.config import Config

PACKAGES = ("lightgbm", "pyarrow", "snakemake", "msgpack", "pyelftools")
KFD = Path("/dev/kfd")
NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")
_ANSWER_S = 10
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
    device = config.benchmark.device
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
        ("ROCm", False, _rocm),
        ("AMD GPU", device == "hip", _amd_gpu),
        ("NVIDIA GPU", device == "cuda", _nvidia_gpu),
        ("visible GPUs", device in VARIABLES, partial(_visible, config)),
        ("telemetry", False, partial(_telemetry, config)),
        ("GPU lock", True, lambda: _lock(config)),
        ("cache", True, lambda: _cache(config)),
        ("SLURM", False, _slurm),
        ("SLURM account", False, _account),
    ]
    found = {look[0]: _tried(*look) for look in looks}
    for subject, without in (("CK API level", CK.what), ("SLURM account", "SLURM")):
        if found[without].status != "ok":
            del found[subject]
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
    if found := modules.version(name):
        return found
    raise UserError("not installed; make environment, or pip install 'tileseer[workflow]'")


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
    gpus = ", ".join(f"{gpu.arch} at {gpu.pci}" for gpu in amd_gpus())
    if not KFD.exists() or not gpus:
        raise UserError(
            f"none: {KFD} or its GPU nodes are missing; for benchmark.device: hip, load the amdgpu driver, and give a "
            "container --device /dev/kfd --device /dev/dri"
        )
    if not os.access(KFD, os.R_OK | os.W_OK):
        raise UserError(
            f"{gpus}, but {KFD} is not yours to open; join the group render (a container: --group-add render)"
        )
    return gpus


def _rocm() -> str:
    for folder in rocm_folders():
        version = folder / ".info/version"
        if version.is_file():
            return f"{version.read_text().strip()} in {folder}"
    places = ", ".join(map(str, rocm_folders()))
    raise UserError(f"no install in {places}; set ROCM_PATH, or run `make toolchain` where nothing is measured")


def _visible(config: Config) -> str:
    """What the workflow would measure on: GPUs of the configured arch, as far as the environment shows them."""
    device = config.benchmark.device
    set_ = " ".join(f"{name}={os.environ[name]}" for name in VARIABLES.get(device, ()) if name in os.environ)
    if device not in VARIABLES:
        return f"benchmark.device is {device}: none is used"
    refuse_other_gpus(device, config.arch)
    found = boards(device, warn=False)
    if not found:
        raise UserError(f"none is told for {device}; see the lines above")
    return f"{len(found)} for {config.arch}" + (f" ({set_})" if set_ else "")


def _telemetry(config: Config) -> str:
    found, lacks = [], []
    for device, (module, how) in LIBRARIES.items():
        try:
            importlib.import_module(module)
            found.append(module)
        except Exception as error:  # As amdsmi raises what it likes.
            lacks.append((device, f"{module} cannot be imported ({error}); install {how}"))
    wanted = [told for device, told in lacks if device == config.benchmark.device]
    if wanted or not found:
        raise UserError((wanted or [lacks[0][1]])[0])
    return ", ".join(found)


def _slurm() -> str:
    if not shutil.which("sbatch"):
        raise UserError(
            "no sbatch; only --workflow-profile profiles/slurm needs it: start that where jobs are submitted"
        )
    partitions = cluster.told("sinfo", "--noheader", "--format=%P", timeout_s=_ANSWER_S)
    if partitions is None:
        raise UserError("sbatch is there, but sinfo does not answer; ask the site whether the controller is up")
    return f"partitions {' '.join(partitions)}"


def _account() -> str:
    """Account that jobs are billed to; a cluster without accounting has none, and needs none."""
    rows = cluster.accounts(getpass.getuser(), _ANSWER_S)
    if rows is None:
        return "this cluster keeps no accounts"
    if not rows:
        raise UserError(
            "you have none; ask the site for one, then add default-resources: slurm_account=NAME to the profile"
        )
    return " ".join(sorted(set(rows)))


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
