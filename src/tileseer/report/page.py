"""The page: its sections, the kind of device, and the template that they fill in."""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

from tileseer.core import templates
from tileseer.core.templates import mistakes_named
from tileseer.report import decisions, figures, tables
from tileseer.report.results import Results

SCRIPTS = ("sortable.min.js", "report.js")
"""Beside the template: sorting of tables (sortable-tablesort 4.1.7, public domain), and our own."""


@dataclass(frozen=True)
class PageSection:
    """What is shown below a headline, whose words stand in the template; ``folded`` tables are seen on demand.

    A section without a panel and a table is left out: its data is not there.
    """

    name: str
    shown: tuple[tables.Tabulate, ...] = ()
    draw: tuple[figures.Draw, ...] = ()
    folded: tuple[tables.Tabulate, ...] = ()


SECTIONS = (
    PageSection("verdict", (decisions.verdict,), folded=(tables.metrics, tables.bounds, tables.reality)),
    PageSection("ship", (decisions.ship,), folded=(decisions.shipped,)),
    PageSection("wins", (decisions.wins,), (figures.wins,)),
    PageSection("shapes", (decisions.best,), (figures.roofline,)),
    PageSection(
        "losses",
        (decisions.following, decisions.losses),
        folded=(decisions.worst, tables.networks, tables.runs),
    ),
    PageSection(
        "baselines",
        draw=(figures.choosers, figures.distribution),
        folded=(tables.rivals, tables.choosers),
    ),
    PageSection(
        "learning",
        draw=(figures.learning_curve, figures.transfer),
    ),
    PageSection("sources", (decisions.health, tables.provenance, tables.recorded)),
)
"""The page in reading order. A new figure is a function in ``figures``, an entry here and its words in the template."""


DEVICE_NOTES: dict[str, tuple[str, ...]] = {
    "simulated": (
        "simulated – no GPU was measured",
        "Times come from a formula with reproducible deviation and noise, not from a GPU. They serve to develop "
        "and test the workflow; no TFLOPS or speed-up here describes a product.",
        "The formula was fitted to one case only: MI355X, bf16, forward, 2D, one group, ten small tiles, "
        "pipelines compv3 and compv4.",
        "Everything else is assumed: both backward directions, 3D, all other GPUs and data types, all other "
        "pipelines, group merging and split-K. Large tiles come out slower than they are.",
        "Efficiencies show how well a model learns this formula. They do not forecast the efficiency on a GPU.",
    ),
    "recorded": (
        "recorded – times replayed from a stored table",
        "No GPU was used for this report: the times were measured before, and are as good as the table that they "
        "were read from. Its provenance describes how they were measured.",
    ),
    "measured": ("measured on a GPU",),
}
"""By ``DEVICE_KINDS``: the label of times of this kind, and what a reader has to know about them."""


def render_page(results: Results, template: Path) -> str:
    """The page as HTML that loads nothing; the same results and template give the same text.

    ``SCRIPTS`` lie beside the template. ``UserError`` when one is missing or broken.
    """
    with mistakes_named(template):
        scripts = [_inline((template.parent / name).read_text(encoding="utf-8")) for name in SCRIPTS]
    scripts.insert(0, _inline(figures.library()))
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()) for text in scripts]
    environment = templates.environment(template.parent).overlay(autoescape=True)
    environment.filters["number"] = number
    with mistakes_named(template):
        return environment.get_template(template.name).render(
            results=results,
            note=DEVICE_NOTES[results.device_kind],
            sections=[shown for shown in (_shown(s, results) for s in SECTIONS) if shown["shown"] or shown["panels"]],
            scripts=scripts,
            allowed=" ".join(f"'sha256-{digest.decode()}'" for digest in digests),
        )


def _inline(script: str) -> str:
    """A script that can stand inside ``<script>``: nothing in it ends or comments out the element."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def number(value: int | float) -> str:
    """A number as the page prints it: counts in full, measures with one decimal."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _shown(section: PageSection, results: Results) -> dict[str, object]:
    panels = [panel for draw in section.draw for panel in draw(results)]
    folded = [table.folded() for tabulate in section.folded for table in tabulate(results)]
    return {
        "name": section.name,
        "shown": [table for tabulate in section.shown for table in tabulate(results)],
        "panels": [
            {
                "svg": figures.svg(panel.spec, f"{section.name}-{number}"),
                "spec": panel.spec,
                "words": f"{panel.title}. {panel.words}",
            }
            for number, panel in enumerate(panels)
        ],
        "folded": folded,
        "more": list(dict.fromkeys(table.caption.partition(",")[0] for table in folded)),
    }
