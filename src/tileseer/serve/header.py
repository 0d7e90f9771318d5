"""The C++17 header that picks a kernel: candidates, rules, known problems and evidence, and how its learner scores."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from tileseer.core.templates import fill_cpp_template
from tileseer.facts.operations import ELEMENT_BYTES
from tileseer.learn.evidence import (
    FIRST_OF_STEP,
    LEAST_COMPARED,
    NEAR_PROBLEMS,
    STEPS_OF_AN_OCTAVE,
    known_by_kind,
    sizes_of,
)
from tileseer.learn.formula import UNIT
from tileseer.learn.learner import LANES, CppPart, result_of
from tileseer.learn.model import Model
from tileseer.learn.model_schema import Origin
from tileseer.libraries.registry import library_of_arch
from tileseer.libraries.rules import signature
from tileseer.libraries.symbols import Symbol, Writer, literal
from tileseer.problems.kinds import CHANNELS_OF_FEW, evidence_kind, leaf_kind
from tileseer.problems.operation import Operation
from tileseer.problems.problem import DEEP_LAYOUTS, INT32_MAX, LAYOUTS, LEAST
from tileseer.serve.selector import Selector

CONTENT = "content_of_this_header"
"""Placeholder for the digest of everything else, which names the inline namespace."""


def render_header(template: Path, selector: Selector) -> str:
    """Return the header that picks as ``selector`` does; a line with ``#error`` where its learner writes no C++."""
    model, library, pool = selector.model, library_of_arch(selector.spec.arch), selector.model.pool
    ndims = pool["ndim"].to_numpy()
    order = np.argsort(ndims, kind="stable")
    position = np.argsort(order, kind="stable")
    pools: list[tuple[int, ...]] = []
    places: list[np.ndarray] = []
    for ndim in (2, 3):
        own = order[ndims[order] == ndim]
        begin, first = sum(map(len, places)), int((ndims < ndim).sum())
        pools.append((ndim, begin, first, len(own)))
        # Whole groups of lanes: the last candidate fills up.
        places.append(np.concatenate([own, own[-1:].repeat(-len(own) % LANES)]))
    spread, inputs = model.with_pool(np.concatenate(places)), _inputs(model)
    given = Operation.parse(model.spec.operation), spread.pool, inputs
    part = result_of(model.spec.params.get("learner"), model.scorer.cpp, *given, kind=CppPart | str)
    if isinstance(part, str):
        return f'#error "{part}"\n'
    dims = list(LEAST.items())
    layouts = model.spec.layouts or []
    if layouts:
        dims.append(("layout", 0))
    by_ndim = [
        [code for code, layout in enumerate(names) if layout in layouts] for names in (LAYOUTS, DEEP_LAYOUTS.values())
    ]
    compared = (selector.known["timed"].to_numpy() >= LEAST_COMPARED).astype(int).tolist()
    known_dims = zip(*(selector.known[name].to_pylist() for name in model.columns), strict=True)
    rows = pool["kernel"].iloc[order], pool["split_k"].iloc[order], order, map(literal, selector.pruned[order])
    content = {
        **Origin.of(model.spec).model_dump(),
        "suffix": library.emitter.header_suffix if library.emitter else "",
        "namespace": f"{model.spec.operation}_{model.spec.arch}",
        "content": CONTENT,
        "library": model.spec.library,
        "taken": str(model.spec.taken or ""),
        "own_margins": [literal(margin) for margin in model.spec.own_margins or ()],
        "few_channels": CHANNELS_OF_FEW,
        "dims": dims,
        "layouts": [" || ".join(f"p.layout == {code}" for code in codes) or "true" for codes in by_ndim]
        * bool(layouts),
        "largest_dim": INT32_MAX,
        "lanes": LANES,
        "groups": max(map(len, places)) // LANES,
        "unit": literal(UNIT),
        "candidates": list(zip(*rows, strict=True)),
        "pools": pools,
        "known": list(zip(known_dims, position[selector.known["row"].to_numpy()].tolist(), compared, strict=True)),
        **_evidence(model, inputs),
        **_rules(spread, inputs),
        **part.values,
    }
    text = fill_cpp_template(part.template, template.parent, **content)
    return text.replace(CONTENT, f"model_{hashlib.sha256(text.encode()).hexdigest()[:16]}")


def _inputs(model: Model) -> dict[str, Any]:
    """Return what features and rules read of a problem, as symbols; a model of one layout gets no other."""
    # Any: functions of columns are run on symbols.
    inputs: dict[str, Any] = {name: Symbol.input(name) for name in ("ndim", *model.columns)}
    return {"layout": np.zeros((), np.int64)} | inputs


def _rules(model: Model, inputs: dict[str, Any]) -> dict[str, object]:
    """Return the template's values for the support rules, on the classes of kernels that they tell apart.

    Those that need the problem are C++; which classes pass the others, and the class of each candidate, are tables.
    """
    spec, support = model.spec, library_of_arch(model.spec.arch).rules
    columns, classes = support.kernel_classes(model.pool, model.hardware)
    kernel = {name: values[0] for name, values in columns.items()}
    problem = support.read_of_problems(inputs, spec.variant, ELEMENT_BYTES[spec.dtype])
    problem |= {"signature": signature(spec.variant, spec.dtype, inputs["ndim"])}
    held = [value for _, value in support.of_problems(problem, kernel)]
    always = kernel["refused"] == 0
    for value in held:
        if not isinstance(value, Symbol):
            always &= value
    writer = Writer("rule_table")
    rules = [value for value in held if isinstance(value, Symbol)]
    body, results = writer.loop({str(number): rule for number, rule in enumerate(rules)})
    return {
        "rule_tables": writer.tables,
        "rule_once": writer.once,
        "rule_body": body,
        "rule_results": list(results.values()),
        "always": [literal(value) for value in always],
        "class_of": classes.tolist(),
    }


def _evidence(model: Model, inputs: dict[str, Any]) -> dict[str, object]:
    """Return the template's values for how a problem stands to what was measured."""
    writer = Writer("evidence_table")
    sizes = [writer.problem(size) for size in sizes_of(inputs)]
    inside, edge = model.spec.evidence.squares
    known, leaf = known_by_kind(model.spec.evidence), writer.problem(leaf_kind(inputs))
    names = dict.fromkeys(known.kind[:, 0].tolist())
    first = {name: known.kind[:, 0].tolist().index(name) for name in names}
    losses = np.stack([known.loss, known.own_loss, known.below_half], axis=2)
    return {
        "evidence_kind": writer.problem(evidence_kind(inputs)),
        "evidence_leaf": leaf,
        "evidence_kinds": [
            (name, int(known.cases[at, 0]), [list(map(_or_unknown, row)) for row in losses[at].tolist()])
            for name, at in first.items()
        ],
        "evidence_kind_of": [[*names].index(name) for name in known.kind[:, 0].tolist()],
        "evidence_classes": known.classes.ravel().tolist(),
        "evidence_gains": known.gains.astype(int).ravel().tolist(),
        "evidence_sizes": sizes,
        "evidence_once": writer.once,
        "evidence_steps": STEPS_OF_AN_OCTAVE,
        "evidence_firsts": [literal(value) for value in FIRST_OF_STEP],
        "evidence_near": NEAR_PROBLEMS,
        "evidence_inside": inside,
        "evidence_edge": edge,
    }


def _or_unknown(value: float) -> str:
    return "unknown" if np.isnan(value) else literal(value)
