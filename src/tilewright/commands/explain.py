"""``tilewright explain``: why something is as it is. ``explain config`` shows what every rule says of a kernel."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from tilewright import single_kernel
from tilewright.arch import ArchSpecs
from tilewright.ck_api import load as load_api
from tilewright.depthwise import DepthwiseConfig
from tilewright.emit import name
from tilewright.errors import UserError
from tilewright.kernel import LAYOUTS, KernelConfig
from tilewright.operation import DTYPES, VARIANTS
from tilewright.rules import explanation
from tilewright.rules.explanation import Verdict
from tilewright.rules.named import parse_name
from tilewright.rules.words import NDIMS

DEFAULT_NDIM = 2


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the modes, each with its arguments."""
    modes = parser.add_subparsers(dest="mode", required=True, metavar="WHAT")
    config = modes.add_parser("config", help="what every rule says of a kernel", description=_explain_config.__doc__)
    config.add_argument("name", nargs="?", help="the kernel's name; or give it by its fields")
    config.add_argument("--arch", required=True, help="GPU target, for example gfx950")
    config.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    config.add_argument("--config", type=Path, default=Path("config"), metavar="DIR", help="tables (default: config)")
    fields = config.add_argument_group("a kernel by its fields")
    fields.add_argument("--variant", choices=VARIANTS)
    fields.add_argument("--ndim", type=int, choices=NDIMS, help=f"default: {DEFAULT_NDIM}")
    fields.add_argument("--datatype", choices=DTYPES)
    single_kernel.configure(fields)
    config.set_defaults(explain=_explain_config)


def run(args: argparse.Namespace) -> int:
    """Print the explanation of the mode."""
    print(args.explain(args))
    return 0


def _explain_config(args: argparse.Namespace) -> str:
    """Show every rule with pass or FAIL and the reason; the last line says whether a build has the kernel."""
    kernel = _kernel(args)
    specs = ArchSpecs.load(args.config / "arch_specs.json")
    verdicts = explanation.explain(kernel, args.arch, specs, load_api(args.config / "ck_api.yaml"))
    title = name(kernel)
    if args.format == "json":
        rows = [asdict(verdict) for verdict in verdicts]
        return json.dumps({"kernel": title, "arch": args.arch, "fields": asdict(kernel), "rules": rows}, indent=1)
    return "\n".join([f"{title} on {args.arch}", *_lines(verdicts)])


def _kernel(args: argparse.Namespace) -> KernelConfig | DepthwiseConfig:
    fields = single_kernel.given(args)
    by_fields = fields or args.variant or args.ndim or args.datatype
    if args.name and by_fields:
        raise UserError("give the kernel by its name or by its fields, not both")
    if args.name:
        return parse_name(args.name)
    if not args.variant or not args.datatype:
        raise UserError("which kernel? give its name, or --variant, --datatype and the fields that matter")
    ndim = args.ndim or DEFAULT_NDIM
    values = single_kernel.kernel_fields(fields)
    return KernelConfig(variant=args.variant, dtype=args.datatype, layout=LAYOUTS[ndim][0], ndim=ndim, **values)


def _lines(verdicts: list[Verdict]) -> list[str]:
    width = max(len(verdict.rule) for verdict in verdicts)
    lines, group = [], ""
    for verdict in verdicts:
        if verdict.group != group:
            group = verdict.group
            lines.append(f"{group}:")
        mark = "pass" if verdict.passed else "FAIL"
        lines.append(f"  {mark}  {verdict.rule:<{width}}  {verdict.reason}".rstrip())
    return lines
