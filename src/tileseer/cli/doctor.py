"""``tileseer doctor``: compilers, GPUs and packages of this machine, and how to get what is missing."""

import argparse
import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from tileseer.build import compiler
from tileseer.build import source_trees as trees
from tileseer.cli import options
from tileseer.core import code_digest
from tileseer.core.cache import open_cache
from tileseer.core.errors import UserError
from tileseer.core.locks import holder_of, lock_folder
from tileseer.core.places import find_file, install
from tileseer.core.yaml_files import read_yaml
from tileseer.facts.config import Config, check
from tileseer.libraries.registry import tree_of_toolchain
from tileseer.libraries.source_tree import rocm_folders
from tileseer.measure.harness.telemetry import VARIABLES, amd_boards, boards, refuse_other_gpus

EXAMPLES = (
    "tileseer doctor",
    "tileseer doctor --configfile config/hip.yaml --json",
)
WORKFLOW_PACKAGES = ("lightgbm", "pyarrow", "snakemake", "msgpack", "pyelftools")
KFD = Path("/dev/kfd")
NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")
_MIB = 2**20
CK, CUTLASS = tree_of_toolchain("hipcc"), tree_of_toolchain("nvcc")


@dataclass(frozen=True)
class Finding:
    """The result of a check of one thing that the workflow can use."""

    subject: str
    status: str
    """ok, missing (something else works without it) or needed (the configuration asks for it)."""
    result: str
    """What was found."""
    fix: str = ""
    """What to do; empty where nothing is wrong."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.add_tables(parser)
    meaning = "configuration to check against (default: config.yaml of --config)"
    parser.add_argument("--configfile", type=Path, metavar="FILE", help=meaning)


def run(args: argparse.Namespace) -> int:
    """Print the findings; exit status 1 if something that the configuration asks for is missing."""
    path = args.configfile or args.config / "config.yaml"
    config = check(read_yaml(path), str(path)) if args.configfile or path.exists() else Config()
    findings = find_all(config, find_file(args.config / "ck_api.yaml"))
    width = max(len(finding.subject) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.status:7}  {finding.subject:{width}}  {finding.result}")
        if finding.fix:
            lines.append(f"{'':{9 + width}}  -> {finding.fix}")
    is_needed = any(finding.status == "needed" for finding in findings)
    return options.answer(args, {"findings": [asdict(finding) for finding in findings]}, lines, is_needed)


def find_all(config: Config, api_table: Path) -> list[Finding]:
    """Return the results of all checks, in the order in which a build needs the things."""
    device = config.benchmark.device
    hip, cuda = (config.compile.toolchain == name for name in ("hipcc", "nvcc"))
    checks: list[tuple[str, bool, Callable[[], str]]] = [
        ("system", True, lambda: f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"),
        ("machine", True, partial(_machine, config)),
        *((name, False, partial(_package, name)) for name in WORKFLOW_PACKAGES),
        ("HIP compiler", hip, partial(_compiler, config, compiler.HIPCC)),
        (CK.what, hip, lambda: str(CK.find(config.ck.root))),
        ("CK API level", hip, lambda: trees.ck_level(config.ck, api_table, True)),
        ("CUDA compiler", cuda, partial(_compiler, config, compiler.NVCC)),
        (CUTLASS.what, cuda, lambda: str(CUTLASS.find(config.cutlass.root))),
        ("ROCm", False, _rocm),
        ("AMD GPU", device == "hip", _amd_gpu),
        ("NVIDIA GPU", device == "cuda", _nvidia_gpu),
        ("visible GPUs", device in VARIABLES, partial(_visible, config)),
        ("GPU lock", True, partial(_lock, config)),
        ("cache", True, partial(_cache, config)),
    ]
    findings = {check[0]: _finding(*check) for check in checks}
    if findings[CK.what].status != "ok":
        del findings["CK API level"]
    return list(findings.values())


def _finding(subject: str, needed: bool, look: Callable[[], str]) -> Finding:
    """Return the result of a check; its ``UserError`` says what is wrong and, after the last semicolon, what to do."""
    try:
        return Finding(subject, "ok", look())
    except UserError as error:
        fault, _, fix = str(error).rpartition("; ")
        return Finding(subject, "needed" if needed else "missing", fault, fix)


def _machine(config: Config) -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MIB
    disk = shutil.disk_usage(".").free // _MIB
    sizes = f"{os.cpu_count()} cores, {memory} MiB of memory, {disk} MiB free on this disk"
    if config.compile.toolchain != "none" and memory < config.compile.memory_mib:
        raise UserError(f"{sizes}; compile.memory_mib is {config.compile.memory_mib}: lower it")
    return sizes


def _package(name: str) -> str:
    if version := code_digest.version_of(name):
        return version
    raise UserError(f"not installed; make environment, or {install('workflow')}")


def _compiler(config: Config, vendor: compiler.Vendor) -> str:
    # Without a toolchain, compile.compiler is hipcc, as everywhere.
    chosen = compiler.VENDORS.get(config.compile.toolchain, compiler.HIPCC)
    installed = compiler.find_vendor_compiler(
        vendor, config.compile.compiler if vendor.program == chosen.program else None
    )
    lines = installed.version.splitlines()
    release = next((line for line in lines if "release" in line), lines[0])
    return f"{installed.path} ({installed.origin}): {release}"


def _amd_gpu() -> str:
    gpus = ", ".join(f"{board.arch} at {board.lock}" for board in amd_boards())
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
    """Return what the workflow would measure on: GPUs of the configured arch, as far as the environment shows them."""
    device = config.benchmark.device
    if device not in VARIABLES:
        return f"benchmark.device is {device}: none is used"
    refuse_other_gpus(device, config.arch)
    visible = boards(device, warn=False)
    if not visible:
        raise UserError(f"no {device} GPU is visible; see the lines above")
    chosen = [f" ({name}={os.environ[name]})" for name in VARIABLES[device] if name in os.environ]
    return f"{len(visible)} for {config.arch}{''.join(chosen)}"


def _nvidia_gpu() -> str:
    count = len(list(NVIDIA_GPUS.glob("*")))
    if not count:
        raise UserError("none; for benchmark.device: cuda, load the nvidia driver")
    return str(count)


def _lock(config: Config) -> str:
    folder = lock_folder(config.lock.folder)
    holders = {path.stem: holder_of(path) for path in sorted(folder.glob("tileseer-*.lock"))}
    held = "; ".join(f"{name} held by {holder}" for name, holder in holders.items() if holder) or "free"
    _refuse_unwritable(folder, "set lock.folder to a folder that all its users can write")
    return f"{folder}: {held}"


def _refuse_unwritable(folder: Path, fix: str) -> None:
    """Raise a ``UserError`` if no file can be made in a folder; for root the permissions say nothing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"{folder} cannot be written ({error.strerror}); {fix}") from error


def _cache(config: Config) -> str:
    cache = open_cache(config.cache.folder, config.cache.max_gib)
    _refuse_unwritable(cache.folder, "set cache.folder to a folder that you can write")
    stats = cache.stats()
    return f"{cache.folder}: {stats.entries} entries, {stats.bytes // _MIB} MiB"
