"""``tilewright codegen``: list the kernels of a named rule set for one arch."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tilewright.arch import ArchSpecs
from tilewright.errors import UserError
from tilewright.operation import DTYPES, VARIANTS
from tilewright.rules.named import NDIMS, RULE_SETS, enumerate_rule_set
from tilewright.rules.rule_tables import RuleTables

DEFAULT_NDIMS = (2, 3)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--arch", required=True, help="GPU target, for example gfx950")
    parser.add_argument("--rule-set", choices=RULE_SETS, default="default", help="which set (default: default)")
    parser.add_argument(
        "--variant", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="directions (default: all three)"
    )
    parser.add_argument(
        "--ndim", nargs="+", type=int, choices=NDIMS, default=list(DEFAULT_NDIMS), help="dimensions (default: 2 3)"
    )
    parser.add_argument(
        "--datatype", nargs="+", choices=DTYPES, default=list(DTYPES), help="data types (default: all three)"
    )
    parser.add_argument("--list-names", action="store_true", help="print the unique kernel names, sorted")
    parser.add_argument(
        "--arch-filtered", action="store_true", help="only kernels that pass the architecture filter of the reference"
    )
    parser.add_argument(
        "--config", type=Path, default=Path("config"), metavar="DIR", help="directory of the tables (default: config)"
    )
    parser.epilog = "One request: full-tests and tiny are drawn from all that is asked for together."


def run(args: argparse.Namespace) -> int:
    """Print the names; an empty list is a valid answer and is said so on standard error."""
    if not args.list_names:
        raise UserError("nothing to do: add --list-names")
    specs = ArchSpecs.load(args.config / "arch_specs.json")
    tables = RuleTables.load(args.config / "rule_sets")
    kernels = enumerate_rule_set(args.rule_set, args.arch, args.variant, args.ndim, args.datatype, specs, tables)
    names = {item.name for item in kernels if item.passes_arch_filter or not args.arch_filtered}
    if not names:
        print(f"{args.rule_set} has no such kernel on {args.arch}", file=sys.stderr)
    sys.stdout.writelines(f"{name}\n" for name in sorted(names))
    return 0
