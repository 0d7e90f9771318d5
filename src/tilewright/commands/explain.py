"""``tilewright explain``: why something is as it is. ``explain config`` shows what every rule says of a kernel."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from tilewright import command_line, single_kernel
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


EXAMPLES = (
    f"tilewright explain pick results/models/gfx950 --problem {command_line.EXAMPLE}",
    f"tilewright explain pick results/models/gfx950 --problem {command_line.EXAMPLE} \\\n"
    "      --against NAME --dataset results/datasets/gfx950/forward_bf16.parquet",
    "tilewright explain config NAME --arch gfx950",
    "tilewright explain config --variant forward --dtype bf16 --pipeline mem --tile-k 24 --arch gfx950 --json",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the modes, each with its arguments."""
    modes = parser.add_subparsers(dest="mode", required=True, metavar="WHAT")
    _configure_pick(modes.add_parser("pick", help="why a model picks a kernel", description=_explain_pick.__doc__))
    config = modes.add_parser("config", help="what every rule says of a kernel", description=_explain_config.__doc__)
    config.add_argument("name", nargs="?", help="the kernel's name; or give it by its fields")
    config.add_argument("--arch", required=True, help="GPU target, for example gfx950")
    command_line.add_tables(config)
    command_line.add_json(config)
    fields = config.add_argument_group("a kernel by its fields")
    fields.add_argument("--variant", choices=VARIANTS)
    fields.add_argument("--ndim", type=int, choices=NDIMS, help=f"default: {DEFAULT_NDIM}")
    fields.add_argument("--dtype", "--datatype", dest="datatype", choices=DTYPES)
    single_kernel.configure(fields)
    config.set_defaults(explain=_explain_config)


def _configure_pick(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", type=Path, metavar="MODEL_DIR", help="directory with index.json, of one arch")
    command_line.add_problem(parser)
    parser.add_argument("--top", type=command_line.positive, default=5, help="ranked candidates to show (default: 5)")
    parser.add_argument("--against", metavar="CANDIDATE", help="explain the pick against this one (default: rank 2)")
    parser.add_argument(
        "--dataset", type=Path, metavar="PARQUET",
        help="measured times beside the ranking, if the problem is among them; the nearest problems are taken from it",
    )  # fmt: skip
    command_line.add_json(parser)
    parser.set_defaults(explain=_explain_pick)


def run(args: argparse.Namespace) -> int:
    """Print the explanation of the mode."""
    return int(args.explain(args))


def _explain_pick(args: argparse.Namespace) -> int:
    """Show the ranking of a problem's candidates, which features speak for the first against the second, and the
    measured problems that are most like this one.
    """
    # LightGBM and pandas take a second; the other mode needs neither.
    from tilewright import explain_pick

    problem = command_line.problem(args)
    found = explain_pick.explanation(args.models, problem, args.top, args.against, args.dataset)
    if args.json:
        command_line.print_json("explain pick", found)
    else:
        print("\n".join(explain_pick.lines(found)))
    return 0


def _explain_config(args: argparse.Namespace) -> int:
    """Show every rule with pass or FAIL and the reason; the last line says whether a build has the kernel."""
    kernel = _kernel(args)
    specs = ArchSpecs.load(args.config / "arch_specs.json")
    verdicts = explanation.explain(kernel, args.arch, specs, load_api(args.config / "ck_api.yaml"))
    title = name(kernel)
    if args.json:
        rows = [asdict(verdict) for verdict in verdicts]
        content = {"kernel": title, "arch": args.arch, "fields": asdict(kernel), "rules": rows}
        command_line.print_json("explain config", content)
    else:
        print("\n".join([f"{title} on {args.arch}", *_lines(verdicts)]))
    return 0


def _kernel(args: argparse.Namespace) -> KernelConfig | DepthwiseConfig:
    fields = single_kernel.given(args)
    by_fields = fields or args.variant or args.ndim or args.datatype
    if args.name and by_fields:
        raise UserError("give the kernel by its name or by its fields, not both")
    if args.name:
        return parse_name(args.name)
    if not args.variant or not args.datatype:
        raise UserError("which kernel? give its name, or --variant, --dtype and the fields that matter")
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
