"""``tileseer doctor``: what a run would refuse, compilers and GPUs of this machine, and how to get what is missing."""

import argparse
import importlib.util
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from tileseer.build import compiler
from tileseer.cli import options, preflight
from tileseer.cli.run_words import settings_of
from tileseer.core.code_digest import version_of
from tileseer.core.errors import UserError
from tileseer.core.places import find_file, install, workflow_folder
from tileseer.core.yaml_files import read_yaml
from tileseer.facts.config import Config, check
from tileseer.libraries.registry import library_of_arch, tree_of_toolchain
from tileseer.libraries.source_tree import SourceTree
from tileseer.measure.harness.telemetry import LIBRARIES, VARIABLES, boards, missing_driver

EXAMPLES = (
    "tileseer doctor",
    "tileseer doctor --configfile config/hip.yaml --json",
)
WORKFLOW_PACKAGES = ("lightgbm", "pyarrow", "snakemake", "msgpack", "pyelftools")


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
    meaning = "configuration to check against, over config/config.yaml (default: config.yaml of --config)"
    parser.add_argument("--configfile", nargs="+", default=[], type=Path, metavar="FILE", help=meaning)


def run(args: argparse.Namespace) -> int:
    """Print the findings; exit status 1 if something that the configuration asks for is missing."""
    path = args.config / "config.yaml"
    if args.configfile:
        config = settings_of(["--configfile", *map(str, args.configfile)])
    else:
        config = check(read_yaml(path), str(path)) if path.exists() else Config()
    findings = find_all(config.located(os.path.relpath(workflow_folder())), args.config)
    lines = options.table_lines([{"status": one.status, "of": one.subject, "found": one.result} for one in findings])
    lines += [f"{one.status}: {one.subject}: {one.fix}" for one in findings if one.fix]
    is_needed = any(finding.status == "needed" for finding in findings)
    return options.answer(args, {"findings": [asdict(finding) for finding in findings]}, lines, is_needed)


def find_all(config: Config, tables: Path) -> list[Finding]:
    """Return the packages, compilers and GPUs of this machine, then what a run of the configuration would refuse."""
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, {os.cpu_count()} cores"
    findings = [Finding("system", "ok", system), _finding("packages", False, _packages)]
    for program, vendor in compiler.VENDORS.items():
        needed, tree = config.compile.toolchain == program, tree_of_toolchain(program)
        named = config.compile.compiler if needed else None
        findings.append(_finding(vendor.what, needed, partial(_compiler, vendor, named)))
        findings.append(_finding(tree.what, needed, partial(_tree, tree, getattr(config, tree.section).root)))
        device = vendor.backend
        findings.append(_finding(f"{device} GPUs", config.benchmark.device == device, partial(_gpus, device)))
    for name, how in library_of_arch(config.arch).modules.items():
        findings.append(
            _finding(f"Python module {name}", config.benchmark.device == "cuda", partial(_module, name, how))
        )
    told = {finding.result for finding in findings}
    files = [find_file(tables / name) for name in ("rule_sets", "simulated_device.yaml", "ck_api.yaml")]
    faults = map(_fault_and_fix, preflight.faults_of(config, *files))
    return findings + [Finding("configuration", "needed", *fault) for fault in faults if fault[0] not in told]


def _finding(subject: str, needed: bool, look: Callable[[], str]) -> Finding:
    """Return the result of a check; its ``UserError`` says what is wrong and, after the last semicolon, what to do."""
    try:
        return Finding(subject, "ok", look())
    except UserError as error:
        return Finding(subject, "needed" if needed else "missing", *_fault_and_fix(str(error)))


def _fault_and_fix(message: str) -> tuple[str, str]:
    fault, separator, fix = message.rpartition("; ")
    return (fault, fix) if separator else (fix, "")


def _packages() -> str:
    versions = {name: version_of(name) for name in WORKFLOW_PACKAGES}
    if missing := [name for name, version in versions.items() if not version]:
        raise UserError(f"{', '.join(missing)} not installed; make environment, or {install('workflow')}")
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _module(name: str, how: str) -> str:
    if importlib.util.find_spec(name) is None:
        raise UserError(f"not installed; {how}")
    return "installed"


def _compiler(vendor: compiler.Vendor, named: str | None) -> str:
    installed = compiler.find_vendor_compiler(vendor, named)
    lines = installed.version.splitlines()
    release = next((line for line in lines if "release" in line), lines[0])
    return f"{installed.path} ({installed.origin}): {release}"


def _tree(tree: SourceTree, root: str | None) -> str:
    return str(tree.find(root))


def _gpus(device: str) -> str:
    if missing := missing_driver(device):
        raise UserError(f"none: {missing}")
    visible = [f"{board.arch} at {board.lock}" for board in boards(device, warn=False)]
    chosen = [f"{name}={os.environ[name]}" for name in VARIABLES[device] if name in os.environ]
    return ", ".join([*visible, *chosen]) or f"a driver; {LIBRARIES[device][1]} lists them"
