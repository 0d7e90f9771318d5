"""The page: its sections, and the template that they fill in."""

import base64
import hashlib
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from tileseer.core import templates
from tileseer.core.code_digest import version_of
from tileseer.core.templates import mistakes_named
from tileseer.report import figures, kernels, losses, summary, tables
from tileseer.report.results import Results
from tileseer.serve.verdict import meaning_of_times, next_step

SCRIPTS = ("sortable.min.js", "report.js")
"""Beside the template: sorting of tables (sortable-tablesort 4.1.7, public domain), and our own."""


@dataclass(frozen=True)
class PageSection:
    """What is shown below a headline, whose words are in the template; ``folded`` tables are seen on demand.

    A section without a panel and a table is left out: its data does not exist.
    """

    name: str
    shown: tuple[tables.Tabulate, ...] = ()
    draw: tuple[figures.Draw, ...] = ()
    folded: tuple[tables.Tabulate, ...] = ()


SECTIONS = (
    PageSection("ship", (kernels.ship,), folded=(kernels.shipped,)),
    PageSection("losses", (losses.improvements, losses.networks), folded=(losses.kinds, losses.worst)),
)
"""After the first screen, in reading order."""
APPENDIX = (
    PageSection("kernels", (kernels.wins,), (figures.wins, figures.roofline)),
    PageSection("layers", (kernels.best,)),
    PageSection("alternatives", (tables.libraries, tables.choosers)),
    PageSection("sources", (tables.drift, kernels.health, tables.provenance, tables.recorded)),
)
"""Folded. A new figure is a function in ``figures``, an entry here and its words in the template."""


def render_page(results: Results, template: Path, call: str) -> str:
    """Return the page as HTML that loads nothing; the same results and template give the same text.

    ``call`` is the command that made the results. ``SCRIPTS`` are beside the template. ``UserError`` when one is
    missing or broken.
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
            version=version_of("tileseer"),
            first={
                "headline": summary.headline(results),
                "worth": meaning_of_times(results.device_kind, results.device),
                "verdicts": summary.verdicts(results),
                "next": next_step(results.arch, [one.evaluation for one in results.operations], call),
                "reasons": summary.reasons(results),
                "tables": [*summary.figures(results), *tables.reality(results)],
                "limits": summary.LIMITS[results.device_kind],
            },
            sections=_of_all(SECTIONS, results),
            appendix=_of_all(APPENDIX, results),
            scripts=scripts,
            allowed=" ".join(f"'sha256-{digest.decode()}'" for digest in digests),
        )


def _inline(script: str) -> str:
    """Return a script for the inside of ``<script>``: nothing in it ends or comments out the element."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def number(value: int | float) -> str:
    """Return a number as the page prints it: counts in full, measures with one decimal."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _of_all(sections: tuple[PageSection, ...], results: Results) -> list[dict[str, object]]:
    shown = (_shown(section, results) for section in sections)
    return [section for section in shown if section["shown"] or section["panels"]]


def _shown(section: PageSection, results: Results) -> dict[str, object]:
    # Beside one another: the panels of one operation.
    rows = zip_longest(*(draw(results) for draw in section.draw))
    panels = [panel for panel in chain.from_iterable(rows) if panel]
    folded = [table for tabulate in section.folded for table in tabulate(results)]
    return {
        "name": section.name,
        "shown": [table for tabulate in section.shown for table in tabulate(results)],
        "panels": [
            {
                "svg": figures.svg(panel.spec, f"{section.name}-{number}"),
                "spec": panel.spec,
                "words": f"{panel.title}. {panel.label}. {panel.words}",
            }
            for number, panel in enumerate(panels)
        ],
        "folded": folded,
        "more": list(dict.fromkeys(table.caption.partition(",")[0] for table in folded)),
    }
