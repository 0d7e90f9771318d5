"""``tileseer explain``: why something is as it is. ``explain config`` shows what every rule says of a kernel."""

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from tileseer.cli import options
from tileseer.config.operations import DTYPES, VARIANTS
from tileseer.core.errors import UserError
from tileseer.core.places import find
from tileseer.gpus.arch import ArchSpecs
from tileseer.kernels.ck_tile.upstream import explanation, named, request
from tileseer.kernels.ck_tile.upstream.explanation import RuleVerdict
from tileseer.kernels.ck_tile.upstream.request import NDIMS

DEFAULT_NDIM = 2


EXAMPLES = (
    f"tileseer explain pick results/models/gfx950 --problem {options.EXAMPLE}",
    f"tileseer explain pick results/models/gfx950 --problem {options.EXAMPLE} \\\n"
    "      --against NAME --dataset results/datasets/gfx950/forward_bf16.parquet",
    "tileseer explain config NAME --arch gfx950",
    "tileseer explain config --variant forward --dtype bf16 --pipeline mem --tile-k 24 --arch gfx950 --json",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the modes, each with its arguments."""
    modes = parser.add_subparsers(dest="mode", required=True, metavar="WHAT")
    _configure_pick(modes.add_parser("pick", help="why a model picks a kernel", description=_explain_pick.__doc__))
    config = modes.add_parser("config", help="what every rule says of a kernel", description=_explain_config.__doc__)
    config.add_argument("name", nargs="?", help="the kernel's name; or give it by its fields")
    config.add_argument("--arch", required=True, help="GPU target, for example gfx950")
    config.add_argument(
        "--ck-api", metavar="LEVEL", default=explanation.LEVELS[0],
        help=f"level of the CK Tile API that a build is for, the newest by default: {', '.join(explanation.LEVELS)}",
    )  # fmt: skip
    options.add_tables(config)
    fields = config.add_argument_group("a kernel by its fields")
    fields.add_argument("--variant", choices=VARIANTS)
    fields.add_argument("--ndim", type=int, choices=NDIMS, help=f"default: {DEFAULT_NDIM}")
    fields.add_argument("--dtype", "--datatype", dest="datatype", choices=DTYPES)
    request.add_field_options(fields)


def _configure_pick(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", type=Path, metavar="MODEL_DIR", help="directory with index.json, of one arch")
    options.add_problem(parser)
    parser.add_argument("--top", type=options.positive, default=5, help="ranked candidates to show (default: 5)")
    parser.add_argument("--against", metavar="CANDIDATE", help="explain the pick against this one (default: rank 2)")
    parser.add_argument(
        "--dataset", type=Path, metavar="PARQUET",
        help="measured times beside the ranking, if the problem is among them",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Print the explanation of the mode."""
    return {"pick": _explain_pick, "config": _explain_config}[args.mode](args)


def _explain_pick(args: argparse.Namespace) -> int:
    """Show the ranking of a problem's candidates, which features speak for the first against the second, and the
    measured problems that are most like this one.
    """
    # LightGBM and pandas take a second; the other mode needs neither.
    from tileseer.cli import pick_text
    from tileseer.serve import explain_pick

    problem = options.problem(args)
    explained = explain_pick.explain_pick(args.models, problem, args.top, args.against, args.dataset)
    return options.answer(args, explained.model_dump(), pick_text.lines(explained))


def _explain_config(args: argparse.Namespace) -> int:
    """Show every rule with pass or FAIL and the reason; the last line says whether a build has the kernel.

    The exit status is 1 if a rule fails.
    """
    kernel = _kernel(args)
    specs = ArchSpecs.load(find(args.config / "arch_specs.json"))
    verdicts = explanation.explain(kernel, args.arch, specs, find(args.config / "ck_api.yaml"), args.ck_api)
    rows = [asdict(verdict) for verdict in verdicts]
    content = {"kernel": kernel.name, "arch": args.arch, "fields": asdict(kernel), "rules": rows}
    failed = any(not verdict.passed for verdict in verdicts)
    return options.answer(args, content, [f"{kernel.name} on {args.arch}", *_lines(verdicts)], failed)


def _kernel(args: argparse.Namespace) -> named.AnyKernel:
    fields = request.given_fields(args)
    by_fields = fields or args.variant or args.ndim or args.datatype
    if args.name and by_fields:
        raise UserError("give the kernel by its name or by its fields, not both")
    if args.name:
        return explanation.kernel_of(args.name)
    if not args.variant or not args.datatype:
        raise UserError("which kernel? give its name, or --variant, --dtype and the fields that matter")
    values = request.kernel_fields(fields)
    return named.kernels_of_fields(values, [args.variant], [args.ndim or DEFAULT_NDIM], [args.datatype])[0]


def _lines(verdicts: list[RuleVerdict]) -> Iterator[str]:
    width = max(len(verdict.rule) for verdict in verdicts)
    for group, rows in groupby(verdicts, key=attrgetter("group")):
        yield f"{group}:"
        for row in rows:
            yield f"  {'pass' if row.passed else 'FAIL'}  {row.rule:<{width}}  {row.reason}".rstrip()
