"""The page: its sections, the device it speaks of, and the template that they fill in."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

import jinja2

from tileseer.core.templates import mistakes_named
from tileseer.report import figures, tables
from tileseer.report.results import Results

SCRIPT = "report.js"


@dataclass(frozen=True)
class Section:
    """A headline, an explanation, and what is shown below it; tables under a figure are folded away.

    A section without a panel and a table is left out: its data is not there.
    """

    name: str
    title: str
    text: str
    draw: figures.Draw | None = None
    tabulate: tuple[tables.Tabulate, ...] = ()


SECTIONS = (
    Section(
        "results",
        "What the models achieve",
        "Efficiency is the pick's TFLOPS over the best TFLOPS of any candidate on the same problem. A pick that failed "
        "or was not timed counts 0. Every problem is a layer of a real network; the models were trained neither on it "
        "nor on the same layer at another batch size.",
        tabulate=(tables.metrics, tables.bounds),
    ),
    Section(
        "choosers",
        "Against choosing without a model",
        "Bar: 10th percentile to median. Dot: mean. Tick: worst problem. “Best of the model's top 3” is what one gets "
        "for timing the model's first three candidates and keeping the fastest. “Published elsewhere” is what the "
        "reference says of its own models on other hardware, kernels and problems: an order of magnitude, no "
        "ranking.",
        figures.choosers,
        (tables.choosers, tables.baselines, tables.published),
    ),
    Section(
        "distribution",
        "Distribution of the efficiency",
        "How many problems stay at or below an efficiency: the farther right and down a line, the better.",
        figures.distribution,
    ),
    Section(
        "pipelines",
        "Pipelines that win and that are picked",
        "Of how many problems a kernel of each pipeline is the best, and of how many the model picks one. Of kernels "
        "with the same time the first by name counts as the best, so a pipeline that another one equals may never be.",
        figures.pipelines,
    ),
    Section(
        "wins",
        "Which kernels win where",
        "The pipeline that is the fastest on most shapes, by the size of the matrix product that a shape stands for; "
        "the number in a cell is that of the legend, and the fuller the colour, the more of the shapes it wins.",
        figures.wins,
    ),
    Section(
        "best",
        "Best candidate of each shape",
        "The fastest candidate of every validation problem, as timed. “Second best” is its speed in percent of the "
        "best; “pick, %” is that of the model's pick, 0 if it failed. Where cuDNN was timed on the same problem, its "
        "time stands beside. Of the dimensions the usual ones are not printed, as below.",
        tabulate=(tables.best,),
    ),
    Section(
        "networks",
        "By network",
        "Mean efficiency on the layers of each network, lowest first.",
        figures.networks,
        (tables.networks, tables.dimensions, tables.kinds),
    ),
    Section(
        "whole-networks",
        "What the picks cost whole networks",
        "Each layer counts as often as a run of the network needs it. Bar: time of the best candidates over that of "
        "the picks, for the layers whose pick ran. Tick: mean efficiency of the layers, weighted by FLOP, where a pick "
        "that failed counts 0. Worst first.",
        figures.end_to_end,
        (tables.runs,),
    ),
    Section(
        "coverage",
        "Far from what was trained on",
        "Validation problems by the distance to the nearest training problem of their kind, in octaves over the "
        "logarithms of the dimensions, with how many there are. Bar: 10th percentile to median. Dot: mean. Tick: worst "
        "problem.",
        figures.coverage,
        (tables.distances,),
    ),
    Section(
        "worst",
        "Worst picks",
        "Where the model is farthest from the best candidate. At 0 % the pick did not run. Of the dimensions "
        "the usual ones are not printed: strides, dilations, Di and Z of 1, pads of 0. “Spoke for the pick” are SHAP "
        "values, in the space of the score: positive ones made the pick look better than the best.",
        tabulate=(tables.worst,),
    ),
    Section(
        "roofline",
        "Roofline",
        "The best candidate of each shape under the matrix peak and the main memory's bandwidth, both from the "
        "hardware table; each element is counted as moved once, so a cache can lift a dot above the slope.",
        figures.roofline,
    ),
    Section(
        "resources",
        "Resources and speed",
        "Mean efficiency of the candidates, over the shapes on which they run, by the registers and the LDS (shared "
        "memory) that they use. Provenance says whether these were read from code objects or estimated; spills, "
        "scratch and accumulation registers are known of compiled kernels only.",
        figures.resources,
        (tables.resources,),
    ),
    Section(
        "support",
        "Support",
        "Of all pairs of a kernel and a problem, the share that the support rules and the build let through.",
        figures.support,
        (tables.support,),
    ),
    Section(
        "noise",
        "Noise",
        "Median relative standard error of the time, from its launches or samples. Short times are the noisier ones.",
        figures.noise,
    ),
    Section(
        "drift",
        "Drift",
        "How far the device had drifted while the pairs of each pipeline were measured: the share of its pairs by the "
        "change of the sentinel's time, that of one pair which is measured again after every batch. Pairs of a batch "
        "with a larger change than the limit are measured again. The simulated device draws the drift of each pair.",
        figures.drift,
    ),
    Section(
        "failures",
        "Failures",
        "What became of all pairs. Where any failed, their share of those that the support rules let through is drawn. "
        "A pick that crashes, times out or gives a wrong result scores 0.",
        figures.failures,
        (tables.failures,),
    ),
    Section(
        "learning-curve",
        "Learning curve",
        "Models of a part of the training problems, or of the pairs of the first rounds of active measuring, on the "
        "validation problems: where the line is still steep, more problems help. They have fewer trees than the "
        "published model.",
        figures.learning_curve,
        (tables.learning_curve,),
    ),
    Section(
        "transfer",
        "Start from a prior",
        "What a model of another device, arch or data type is worth beside so many measured pairs, on the validation "
        "problems, with 95 % intervals of the mean. Without a prior the same learner has the same pairs alone.",
        figures.transfer,
        (tables.transfer,),
    ),
    Section(
        "importances",
        "What the models look at",
        "How often the trees split on a feature. It says what is used, not what causes speed.",
        figures.importances,
    ),
    Section(
        "cross-validation",
        "Cross-validation",
        "Out-of-fold picks are made on training problems by a model that has not seen their layer family. RMSE and R² "
        "are those of the model's target, a logarithm.",
        tabulate=(tables.cross_validation,),
    ),
    Section(
        "provenance",
        "Provenance",
        "Where the numbers of this page come from.",
        tabulate=(tables.provenance, tables.recorded),
    ),
)
"""The report in reading order. A new figure is a function in ``figures`` and an entry here."""


@dataclass(frozen=True)
class DeviceNote:
    """What a reader has to know about times of one kind."""

    label: str
    limits: tuple[str, ...] = ()


DEVICE_NOTES = {
    "simulated": DeviceNote(
        "simulated – no GPU was measured",
        (
            "Times come from a formula with reproducible deviation and noise, not from a GPU. They serve to develop "
            "and test the workflow; no TFLOPS or speed-up here is a statement about a product.",
            "The formula was fitted to one case only: MI355X, bf16, forward, 2D, one group, ten small tiles, "
            "pipelines compv3 and compv4.",
            "Everything else is assumed: both backward directions, 3D, all other GPUs and data types, all other "
            "pipelines, group merging and split-K. Large tiles come out slower than they are.",
            "Efficiencies say how well a model learns this formula. They are no forecast of the efficiency on a GPU.",
        ),
    ),
    "recorded": DeviceNote(
        "recorded – times replayed from a stored table",
        (
            "No GPU was used for this report: the times were measured before, and are as good as the table that they "
            "were read from. Provenance says how it was made, as far as that is known.",
        ),
    ),
    "measured": DeviceNote("measured on a GPU"),
}
"""By ``DEVICE_KINDS``."""


def render(results: Results, template: Path) -> str:
    """Return the page as HTML that loads nothing; the same results and template give the same text.

    The template's own script, ``report.js``, lies beside it. ``UserError`` when one is missing or broken.
    """
    with mistakes_named(template):
        script = (template.parent / SCRIPT).read_text(encoding="utf-8")
    scripts = (_inline(figures.library()), _inline(script))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["number"] = number
    with mistakes_named(template):
        return environment.get_template(template.name).render(
            results=results,
            note=DEVICE_NOTES[results.device_kind],
            sections=[shown for shown in (_shown(s, results) for s in SECTIONS) if shown["panels"] or shown["tables"]],
            scripts=scripts,
            allowed=" ".join(f"'sha256-{_digest(text)}'" for text in scripts),
        )


def _inline(script: str) -> str:
    """Return a script that can stand inside ``<script>``: nothing in it ends or comments out the element."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def number(value: int | float) -> str:
    """Return a number as the page prints it: counts in full, measures with one decimal."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _shown(section: Section, results: Results) -> dict[str, object]:
    panels = section.draw(results) if section.draw else []
    return {
        "name": section.name,
        "title": section.title,
        "text": section.text,
        "panels": [
            {
                "svg": figures.svg(panel, f"{section.name}-{number}"),
                "spec": figures.spec(panel),
                "words": f"{panel.title}. {panel.words}",
            }
            for number, panel in enumerate(panels)
        ],
        "tables": [table for tabulate in section.tabulate for table in tabulate(results)],
    }
