"""``tileseer doctor``: tools and devices of this machine, and how to get what is missing."""

import argparse
from dataclasses import asdict
from pathlib import Path

from tileseer.cli import options
from tileseer.client import doctor, doctor_report
from tileseer.core.places import find
from tileseer.core.tables import parsed
from tileseer.settings.config import Config, check

CONFIG = "config.yaml"
API = "ck_api.yaml"
EXAMPLES = (
    "tileseer doctor",
    "tileseer doctor --configfile config/hip.yaml --json",
    "tileseer doctor --configfile config/hip.yaml --report report.json",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.add_tables(parser)
    parser.add_argument(
        "--configfile", type=Path, metavar="FILE", help="configuration to judge by (default: config.yaml of --config)"
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE",
        help="also write all of it, the settings and the ends of the newest logs below logs/ into one file to send, "
        "without names of people, machines and folders",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Print the findings; exit status 1 if something that the configuration asks for is missing."""
    path = args.configfile or args.config / CONFIG
    config = check(parsed(path), str(path)) if args.configfile or path.exists() else Config()
    found = doctor.findings(config, find(args.config / API))
    width = max(len(finding.subject) for finding in found)
    lines = []
    for finding in found:
        lines.append(f"{finding.status:7}  {finding.subject:{width}}  {finding.found}")
        if finding.fix:
            lines.append(f"{'':{9 + width}}  -> {finding.fix}")
    if args.report:
        doctor_report.write(args.report, found, config, Path())
        lines.append(f"written: {args.report}; read it before you send it")
    needed = any(finding.status == "needed" for finding in found)
    return options.answer(args, {"findings": [asdict(finding) for finding in found]}, lines, needed)
