"""Runs the networks of a zoo, one after another; one that fails is listed and the crawl goes on."""

import importlib
import logging
import multiprocessing
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tileseer.core.errors import UserError
from tileseer.problems.crawl import user_model
from tileseer.problems.crawl.observed import tabulate_layers
from tileseer.problems.layers import Layer
from zoo import tables
from zoo.entries import Entry
from zoo.tables import LeftOut

LONGEST_REASON = 160


@dataclass
class Crawled:
    """The layers of a crawl, and what it left out."""

    layers: list[Layer] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)


def crawl(entry: Entry) -> Crawled:
    """Make one network and run it; whatever it raises becomes a row of what was left out, with 0 convolutions."""
    # torch is imported here, so that reading a zoo file needs none.
    from tileseer.problems.crawl import torch_record
    from zoo.feeds import FEEDS

    result = Crawled()
    if entry.group.feed not in FEEDS:
        raise UserError(f"{entry.name}: feed is {entry.group.feed!r}; use one of {', '.join(FEEDS)}")
    feed = FEEDS[entry.group.feed]
    # The libraries print about missing weights and optional parts.
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    try:
        model = torch_record.build_model(_maker(entry))
    # Any error of foreign code is a fact about that network, not a reason to lose the others.
    except Exception as error:
        result.left_out += [LeftOut(entry.name, run.text, reason(error), 0) for run in entry.runs]
        return result
    for run in entry.runs:
        try:
            found = torch_record.record_torch(model, partial(feed, shape=run.shape), run.trained)
        except Exception as error:
            result.left_out.append(LeftOut(entry.name, run.text, reason(error), 0))
            continue
        layers, left_out = tabulate_layers(entry.name, run.text, found)
        result.layers += layers
        result.left_out += [LeftOut(entry.name, run.text, why, count) for why, count in sorted(left_out.items())]
        if not found:
            result.left_out.append(LeftOut(entry.name, run.text, "no convolution", 0))
    return result


def crawl_all(entries: Sequence[Entry], jobs: int, tell: Callable[[str], None]) -> Crawled:
    """Crawl ``entries`` in ``jobs`` processes; the result has their order, and every layer its split."""
    total = Crawled()
    # Processes of their own: torch's threads do not survive a fork.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for number, (entry, result) in enumerate(zip(entries, pool.map(crawl, entries), strict=True), start=1):
            total.layers += result.layers
            total.left_out += result.left_out
            tell(f"{number}/{len(entries)} {entry.name}: {len(result.layers)} layers")
    total.layers = tables.with_splits(total.layers, {entry.name: entry.group.family for entry in entries})
    return total


def resolve(name: str) -> Any:
    """What ``module:attribute`` names."""
    module, _, attribute = name.partition(":")
    if module.partition(".")[0] in ("timm", "torchvision", "monai", "segmentation_models_pytorch", "pytorchvideo"):
        user_model.do_without_operators_of_torchvision()
    value: Any = importlib.import_module(module)
    for part in attribute.split("."):
        value = getattr(value, part)
    return value


def _maker(entry: Entry) -> Callable[[], Any]:
    make = resolve(entry.group.call)
    if entry.group.config is not None:
        config = resolve(entry.group.config)(**entry.arguments)
        return lambda: make(config)
    names = (entry.name,) if entry.group.by_name else ()
    return lambda: make(*names, **entry.arguments)


def reason(error: Exception) -> str:
    """An error in one line, without addresses and paths."""
    text = f"{type(error).__name__}: {error}".split("\n")[0].strip()
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"
