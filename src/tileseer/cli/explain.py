"""``tileseer explain``: why something is as it is. ``explain config`` shows the verdict of every rule on a kernel."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from tileseer.cli import options
from tileseer.core.errors import UserError
from tileseer.core.places import find_file
from tileseer.facts.arch import ArchSpecs
from tileseer.facts.operations import DTYPES, VARIANTS
from tileseer.libraries.ck_tile import api
from tileseer.libraries.ck_tile.names import parse_kernel
from tileseer.libraries.ck_tile.upstream import explanation, named, request
from tileseer.libraries.ck_tile.upstream.explanation import RuleVerdict
from tileseer.libraries.ck_tile.upstream.request import NDIMS
from tileseer.problems.problem import EXAMPLE, Problem

if TYPE_CHECKING:
    from tileseer.serve.explain_pick import Explanation

DEFAULT_NDIM = 2
EXAMPLES = (
    f"tileseer explain pick results/models/gfx950 --problem {EXAMPLE}",
    f"tileseer explain pick results/models/gfx950 --problem {EXAMPLE} \\\n"
    "      --against NAME --dataset results/datasets/gfx950/forward_bf16",
    "tileseer explain config NAME --arch gfx950",
    "tileseer explain config --variant forward --dtype bf16 --pipeline mem --tile-k 24 --arch gfx950 --json",
)
_USUAL_FIELDS = asdict(Problem.from_dims("forward", "bf16", N=1))
_HEADS = {
    "predicted_time_over_that_of_the_pick": "time/pick",
    "predicted_efficiency": "efficiency, %",
    "predicted_ms": "predicted, ms",
    "measured_status": "measured",
    "measured_ms": "ms",
    "measured_efficiency": "of the best, %",
}
"""What the columns of the ranking are called on a terminal."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the modes, each with its arguments."""
    modes = parser.add_subparsers(dest="mode", required=True, metavar="WHAT")
    _configure_pick(modes.add_parser("pick", help="why a model picks a kernel", description=_explain_pick.__doc__))
    config = modes.add_parser(
        "config", help="every rule, with its verdict on a kernel", description=_explain_config.__doc__
    )
    config.add_argument("name", nargs="?", help="the kernel's name; or describe it by its fields")
    config.add_argument("--arch", required=True, help="GPU target, for example gfx950")
    levels = api.LEVELS
    meaning = f"level of the CK Tile API that a build is for, the newest by default: {', '.join(levels)}"
    config.add_argument("--ck-api", metavar="LEVEL", default=levels[0], help=meaning)
    options.add_tables(config)
    fields = config.add_argument_group("a kernel by its fields")
    fields.add_argument("--variant", choices=VARIANTS)
    fields.add_argument("--ndim", type=int, choices=NDIMS, help=f"default: {DEFAULT_NDIM}")
    fields.add_argument("--dtype", "--datatype", dest="datatype", choices=DTYPES)
    request.add_field_options(fields)


def _configure_pick(parser: argparse.ArgumentParser) -> None:
    options.add_models(parser)
    options.add_problem(parser)
    options.add_layout(parser)
    parser.add_argument("--top", type=options.positive, default=5, help="ranked candidates to show (default: 5)")
    parser.add_argument("--against", metavar="CANDIDATE", help="explain the pick against this one (default: rank 2)")
    meaning = "measured times beside the ranking, if the problem is among them"
    parser.add_argument("--dataset", type=Path, metavar="PARQUET", help=meaning)


def run(args: argparse.Namespace) -> int:
    """Print the explanation of the mode."""
    return {"pick": _explain_pick, "config": _explain_config}[args.mode](args)


def _explain_pick(args: argparse.Namespace) -> int:
    """Show the ranking of a problem's candidates, which features speak for the first against the second, and the
    measured problems that are most like this one.
    """
    # LightGBM and pandas take a second; the other mode needs neither.
    from tileseer.serve import explain_pick

    problem = options.problem(args)
    explained = explain_pick.explain_pick(args.models, problem, args.top, args.against, args.dataset)
    return options.answer(args, explained.model_dump(), _pick_lines(explained))


def _pick_lines(explained: Explanation) -> Iterator[str]:
    rows = explained.ranking
    yield f"{explained.operation} on {explained.arch} ({explained.device}), device kind: {explained.device_kind}"
    yield f"problem: {_dims(explained.problem)}"
    yield f"pick: {rows[0]['candidate']}, first of {explained.supported_candidates} candidates that can run it"
    if explained.fastest_measured:
        yield f"fastest measured on exactly this problem ({explained.device_kind}): {explained.fastest_measured}"
    yield ""
    # The longest cell is the last one.
    columns = [name for name in rows[0] if name != "candidate"] + ["candidate"]
    heads = [_HEADS.get(name, name.replace("_", " ")) for name in columns]
    cells = [[_cell(row[name]) for name in columns] for row in rows]
    yield from options.table_lines([dict(zip(heads, row, strict=True)) for row in cells])
    yield ""
    yield from _reason_lines(explained)
    yield ""
    yield from _nearest_lines(explained)


def _reason_lines(explained: Explanation) -> Iterator[str]:
    if explained.against is None:
        yield "there is no other candidate: nothing to explain it against"
        return
    yield (
        f"ahead of {explained.against} by {explained.score_ahead:.4f} in score (e to that is the ratio of predicted "
        "times); of that, positive for the pick:"
    )
    rows = [
        (f"{c['contribution']:+.4f}", c["feature"], f"{c['pick']:g}", f"{c['other']:g}")
        for c in explained.contributions
    ]
    rows.append((f"{explained.other_features:+.4f}", "all other features", "", ""))
    heads = ("points", "feature", "of the pick", "of the other")
    yield from options.table_lines([dict(zip(heads, row, strict=True)) for row in rows])


def _nearest_lines(explained: Explanation) -> Iterator[str]:
    yield options.evidence_line(explained.evidence, explained.evidence_efficiency)
    rows = [
        {
            "octaves away": _cell(row["octaves"]),
            "out of fold, %": _cell(row["out_of_fold_efficiency"]),
            "nearest training problem": _dims(row["problem"]),
            "fastest there": row["fastest"] or "-",
        }
        for row in explained.nearest_training_problems
    ]
    yield from options.table_lines(rows)


def _dims(dims: Mapping[str, int | str]) -> str:
    return " ".join(f"{name}={value}" for name, value in dims.items() if name in "NCK" or value != _USUAL_FIELDS[name])


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _explain_config(args: argparse.Namespace) -> int:
    """Show every rule with pass or FAIL and the reason; the last line says whether a build has the kernel.

    The exit status is 1 if a rule fails.
    """
    kernel = _kernel(args)
    specs = ArchSpecs.load(find_file(args.config / "arch_specs.json"))
    verdicts = explanation.explain(kernel, args.arch, specs, find_file(args.config / "ck_api.yaml"), args.ck_api)
    rows = [asdict(verdict) for verdict in verdicts]
    content = {"kernel": kernel.name, "arch": args.arch, "fields": asdict(kernel), "rules": rows}
    failed = any(not verdict.passed for verdict in verdicts)
    return options.answer(args, content, [f"{kernel.name} on {args.arch}", *_rule_lines(verdicts)], failed)


def _kernel(args: argparse.Namespace) -> named.AnyKernel:
    fields = request.given_fields(args)
    by_fields = fields or args.variant or args.ndim or args.datatype
    if args.name and by_fields:
        raise UserError("describe the kernel by its name or by its fields, not both")
    if args.name:
        return parse_kernel(args.name)
    if not args.variant or not args.datatype:
        raise UserError("which kernel? write its name, or --variant, --dtype and the fields that matter")
    values = request.kernel_fields(fields)
    return named.kernels_of_fields(values, [args.variant], [args.ndim or DEFAULT_NDIM], [args.datatype])[0]


def _rule_lines(verdicts: list[RuleVerdict]) -> Iterator[str]:
    width = max(len(verdict.rule) for verdict in verdicts)
    for group, rows in groupby(verdicts, key=attrgetter("group")):
        yield f"{group}:"
        for row in rows:
            yield f"  {'pass' if row.passed else 'FAIL'}  {row.rule:<{width}}  {row.reason}".rstrip()
