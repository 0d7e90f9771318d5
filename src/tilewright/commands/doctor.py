"""``tilewright doctor``: what this machine has, what is missing, and how to get it."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from tilewright import doctor
from tilewright.settings.config import Config, check
from tilewright.tables import parsed

CONFIG = Path("config/config.yaml")
API = Path("config/ck_api.yaml")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--config", type=Path, default=CONFIG, help=f"configuration to judge by (default: {CONFIG})")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print what was found; exit status 1 if something is missing that the configuration asks for."""
    config = check(parsed(args.config), str(args.config)) if args.config.exists() else Config()
    found = doctor.findings(config, API)
    if args.json:
        print(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        width = max(len(finding.subject) for finding in found)
        for finding in found:
            print(f"{finding.status:7}  {finding.subject:{width}}  {finding.found}")
            if finding.fix:
                print(f"{'':{9 + width}}  -> {finding.fix}")
    return int(any(finding.status == "needed" for finding in found))
