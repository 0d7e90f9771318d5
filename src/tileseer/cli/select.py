"""``tileseer select``: rank the kernels of a published model for one convolution."""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tileseer.cli import options
from tileseer.data.recordings import vendor_models
from tileseer.learn.model_schema import Origin
from tileseer.libraries.registry import library_of_arch
from tileseer.problems.problem import DIMS, EXAMPLE, Problem
from tileseer.serve.explain_pick import why_none
from tileseer.serve.selector import Selector

EXAMPLES = (
    f"tileseer select results/models/gfx950 --problem {EXAMPLE} --top 3",
    "tileseer select results/models/gfx950 --variant forward --dtype bf16 --problem N=8,C=64,K=64,Hi=56,Wi=56 --json",
    f"tileseer select results/models/sm_90 --problem {EXAMPLE} --device 'NVIDIA H100 80GB HBM3'",
)
FORMS = {"rank": "{}", "predicted_time": "{:.1f} %", "score": "{:.4f}", "split_k": "{}", "kernel": "{}"}
"""The columns of the table, each with the form of its cells."""
TUNED = ("candidate", "time_ms", "timed", "device", "device_kind")
"""Fields of a tuned choice that are printed."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.add_models(parser)
    options.add_problem(parser)
    options.add_layout(parser)
    parser.add_argument("--top", type=options.positive, default=5, help="how many candidates to show (default: 5)")
    meaning = "for this device (default: the model's product): what tileseer tune chose on it, or a sibling's picks"
    parser.add_argument("--device", metavar="NAME", help=meaning)


def run(args: argparse.Namespace) -> int:
    """Print the ranking and where the model's times came from; return 1 if nothing supports the problem."""
    problem = options.problem(args)
    selector = Selector.read(args.models, f"{problem.variant}_{problem.dtype}", device=args.device)
    found = selector.answer(problem)
    if not found.ranked:
        print("\n".join(_ways_out(args.models, selector, problem)), file=sys.stderr)
    shown = [row | {"aliases": selector.aliases.get(row["kernel"], [])} for row in found.ranked[: args.top]]
    origin = {name: getattr(selector.spec, name) for name in (*Origin.model_fields, "source", "taken")}
    dims: dict[str, int | str] = {name: getattr(problem, name) for name in DIMS}
    if problem.layout:
        dims["layout"] = problem.layout
    options.warn_of_left_out(args)
    content = {
        **origin,
        "problem": dims,
        "sibling": selector.sibling or None,
        "evidence": found.outlook.evidence,
        "outlook": asdict(found.outlook),
        "fastest_measured": found.fastest_measured,
        "candidates": shown,
        "tuned": found.tuned and {name: getattr(found.tuned, name) for name in TUNED},
    }
    lines = ["{operation} on {arch} ({device}), device kind: {device_kind}".format(**origin)]
    lines.append(f"problem: {options.word_of(problem)}" + (f", layout {problem.layout}" if problem.layout else ""))
    if origin["source"] is not None:
        lines.append(f"times of others: {origin['source']}")
    lines += options.taken_lines(selector.spec.taken)
    if selector.sibling:
        lines.append(f"a sibling's answer: the times are of {origin['device']}, not of {selector.sibling}")
    if found.tuned is not None:
        lines.append("tuned on {device} ({device_kind}), best of {timed}: {candidate}".format(**content["tuned"]))
    if found.fastest_measured is not None:
        lines.append(f"fastest measured on exactly this problem ({origin['device_kind']}): {found.fastest_measured}")
    lines += options.outlook_lines(found.outlook, selector.library) if found.ranked else ()
    lines += options.table_lines([{name: form.format(row[name]) for name, form in FORMS.items()} for row in shown])
    by_kernel = {row["kernel"]: row["aliases"] for row in shown if row["aliases"]}
    lines += [f"same machine code as {kernel}: {', '.join(names)}" for kernel, names in by_kernel.items()]
    return options.answer(args, content, lines, not found.ranked)


def _ways_out(models: Path, selector: Selector, problem: Problem) -> Iterator[str]:
    """Yield what to do where no candidate supports a problem, and how often that is."""
    size = f"no candidate supports the problem: {why_none(selector.model, problem)}"
    if without := selector.evaluated.get("without_candidate"):
        size += (
            f". The same holds for {without} of {selector.evaluated['layers'] + without} layers of the evaluation, "
            f"{100 - selector.evaluated['covered_time']:.0f} % of the time"
        )
    yield size
    if arch := vendor_models(selector.spec.arch):
        yield (
            f"{library_of_arch(arch).title} runs it: tileseer select {models.with_name(arch)}, with the same options "
            f"(tileseer run --arch {arch} makes these models)"
        )
