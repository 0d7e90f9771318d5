"""``README.md`` of a model directory: what the models are, how good, and how a program uses them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tileseer.core import documents
from tileseer.core.templates import Written, fill_markdown_template
from tileseer.data.provenance import Recording
from tileseer.data.recordings import vendor_models
from tileseer.judge.evaluation import Evaluation
from tileseer.judge.verdict import meaning_of_times, verdict_words
from tileseer.learn import model_files
from tileseer.learn.model_files import EVALUATION, Index
from tileseer.libraries.registry import library_of_arch
from tileseer.problems.problem import EXAMPLE


def read_evaluations(models: Path, index: Index) -> dict[str, Evaluation]:
    """Return how good the models of a directory are, by operation."""
    folders = {name: models / entry.folder for name, entry in index.operations.items()}
    return {name: documents.read_document(folder / EVALUATION, Evaluation) for name, folder in folders.items()}


def model_page(models: Path, index: Index, template: Path, recordings: Mapping[str, Recording | None]) -> str:
    """Return the page of the directory ``models``; ``recordings``: where the recorded times of operations are from."""
    evaluations = read_evaluations(models, index)
    operation = min(index.operations, key=lambda name: (not name.startswith("forward"), name))
    variant, _, dtype = operation.rpartition("_")
    library = library_of_arch(index.arch)
    rows = [_row(name, one, recordings.get(name)) for name, one in evaluations.items()]
    return fill_markdown_template(
        template,
        arch=index.arch,
        meaning=meaning_of_times(index.device_kind, index.device),
        operations=rows,
        source=rows[0]["source"] if len({row["source"] for row in rows}) == 1 else None,
        folder=f"results/models/{index.arch}",
        example={"operation": operation, "variant": variant, "dtype": dtype},
        library=vendor_models(index.arch) if any(one.without_candidate for one in evaluations.values()) else None,
        header=f"{index.operations[operation].folder}/{model_files.SELECTOR}",
        problem=EXAMPLE,
        chooses=library.offered,
        ships=library.emitter is not None,
        naming=Written(library.naming),
    )


def figures_of(evaluation: Evaluation) -> dict[str, str]:
    """Return the figures of an evaluation that a reader sees first."""
    network, layer = evaluation.worst_network, evaluation.worst_layer
    return {
        "mean": f"{evaluation.efficiency.mean:.1f}",
        "P10": f"{evaluation.efficiency.p10:.1f}",
        "best of 2": f"{evaluation.best_of_2.mean:.1f}",
        "best of 3": f"{evaluation.best_of_3.mean:.1f}",
        "time over the fastest": f"{evaluation.sum_over_best:.3f}",
        "worst of the 10 longest": f"{evaluation.worst_of_longest:.2f}",
        "speed": ", ".join(f"{speed:.3f} x {name}" for name, speed in evaluation.speeds.items()),
        "worst network": "-" if network is None else f"{network.by_time:.1f} {network.network}",
        "worst layer": f"{layer.efficiency:.1f}" + (f" {layer.network}" if layer.network else ""),
        "layers": f"{evaluation.layers}",
        "without a candidate": f"{evaluation.without_candidate} ({100 - evaluation.covered_time:.1f} % of the time)",
    }


def _row(name: str, evaluation: Evaluation, recording: Recording | None) -> dict[str, Any]:
    source = recording.provenance.get("source", "") if recording else ""
    taken = f"taken with: {recording.taken}" if recording and recording.taken else ""
    words = "; ".join(filter(None, (source, taken)))
    return {
        "name": name,
        "source": f" ({words})" if words else "",
        "verdict": verdict_words(evaluation),
        "cells": list(figures_of(evaluation).values()),
    }
