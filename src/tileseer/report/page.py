"""The page: its sections, the kind of device, and the template that they fill in."""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

from tileseer.core import templates
from tileseer.core.templates import mistakes_named
from tileseer.report import figures, tables
from tileseer.report.results import Results

SCRIPT = "report.js"


@dataclass(frozen=True)
class Section:
    """What is shown below a headline, whose words stand in the template; tables under a figure are folded away.

    A section without a panel and a table is left out: its data is not there.
    """

    name: str
    draw: figures.Draw | None = None
    tabulate: tuple[tables.Tabulate, ...] = ()


SECTIONS = (
    Section("results", tabulate=(tables.metrics, tables.bounds, tables.reality)),
    Section("choosers", figures.choosers, (tables.rivals, tables.choosers, tables.baselines, tables.published)),
    Section("distribution", figures.distribution),
    Section("pipelines", figures.pipelines),
    Section("wins", figures.wins),
    Section("best", tabulate=(tables.best,)),
    Section("networks", figures.networks, (tables.networks, tables.dimensions, tables.kinds)),
    Section("whole-networks", figures.end_to_end, (tables.runs,)),
    Section("coverage", figures.coverage, (tables.distances,)),
    Section("worst", tabulate=(tables.worst,)),
    Section("roofline", figures.roofline),
    Section("resources", figures.resources, (tables.resources,)),
    Section("support", figures.support, (tables.support,)),
    Section("noise", figures.noise),
    Section("drift", figures.drift),
    Section("failures", figures.failures, (tables.failures,)),
    Section("learning-curve", figures.learning_curve, (tables.learning_curve,)),
    Section("transfer", figures.transfer, (tables.transfer,)),
    Section("importances", figures.importances),
    Section("cross-validation", tabulate=(tables.cross_validation,)),
    Section("provenance", tabulate=(tables.provenance, tables.recorded)),
)
"""The page in reading order. A new figure is a function in ``figures``, an entry here and its words in the template."""


DEVICE_NOTES: dict[str, tuple[str, ...]] = {
    "simulated": (
        "simulated – no GPU was measured",
        "Times come from a formula with reproducible deviation and noise, not from a GPU. They serve to develop "
        "and test the workflow; no TFLOPS or speed-up here is a statement about a product.",
        "The formula was fitted to one case only: MI355X, bf16, forward, 2D, one group, ten small tiles, "
        "pipelines compv3 and compv4.",
        "Everything else is assumed: both backward directions, 3D, all other GPUs and data types, all other "
        "pipelines, group merging and split-K. Large tiles come out slower than they are.",
        "Efficiencies say how well a model learns this formula. They are no forecast of the efficiency on a GPU.",
    ),
    "recorded": (
        "recorded – times replayed from a stored table",
        "No GPU was used for this report: the times were measured before, and are as good as the table that they "
        "were read from. Provenance says how it was made, as far as that is known.",
    ),
    "measured": ("measured on a GPU",),
}
"""By ``DEVICE_KINDS``: the label of times of this kind, and what a reader has to know about them."""


def render(results: Results, template: Path) -> str:
    """The page as HTML that loads nothing; the same results and template give the same text.

    The template's own script, ``report.js``, lies beside it. ``UserError`` when one is missing or broken.
    """
    with mistakes_named(template):
        script = (template.parent / SCRIPT).read_text(encoding="utf-8")
    scripts = (_inline(figures.library()), _inline(script))
    environment = templates.environment(template.parent).overlay(autoescape=True)
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
    """A script that can stand inside ``<script>``: nothing in it ends or comments out the element."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def number(value: int | float) -> str:
    """A number as the page prints it: counts in full, measures with one decimal."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _shown(section: Section, results: Results) -> dict[str, object]:
    panels = section.draw(results) if section.draw else []
    return {
        "name": section.name,
        "panels": [
            {
                "svg": figures.svg(spec, f"{section.name}-{number}"),
                "spec": spec,
                "words": f"{panel.title}. {panel.words}",
            }
            for number, (panel, spec) in enumerate((panel, figures.spec(panel)) for panel in panels)
        ],
        "tables": [table for tabulate in section.tabulate for table in tabulate(results)],
    }
