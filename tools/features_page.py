"""The page docs/generated/features.md: the tables of the feature sets."""

from pathlib import Path

from tileseer.learn.features import CODE_COLUMNS, feature_sets

PAGE = Path(__file__).parents[1] / "docs/generated/features.md"
HEAD = """# Features

Written by `make schema`. [Learning](../internals/learning.md#what-a-model-learns) says when each set is used.
"""
SOURCES = {"problem": "problem", "candidate": "kernel name, split-K", "pair": "both"}
FROM_BUILD = ("vgprs", "lds_bytes", "occupancy")
EXTENDS = {"compiled": "tileseer"}
"""Sets of which the page lists only what they have more than another."""


def table(name: str) -> str:
    """Table of one feature set, a row a feature, in matrix order; of one that extends another, the rest."""
    chosen = feature_sets()[name]
    source = {feature.name: SOURCES[kind] for kind in SOURCES for feature in getattr(chosen, kind)}
    source |= dict.fromkeys((name for name in FROM_BUILD if name in source), "build: compiled, or estimated")
    source |= {name: "device" for name in source if name.startswith("hw_")}
    source |= dict.fromkeys((name for name in CODE_COLUMNS if name in source), "build: compiled")
    known = feature_sets()[EXTENDS[name]].names if name in EXTENDS else ()
    listed = [feature for feature in chosen.every if feature.name not in known]
    rows = "".join(f"| `{f.name}` | {f.meaning} | {f.unit} | {source[f.name]} |\n" for f in listed)
    return "| feature | formula | unit | source |\n|---|---|---|---|\n" + rows


def page() -> str:
    """The page as it is committed."""
    return HEAD + "".join(f"\n## {name}\n\n{table(name)}" for name in feature_sets())
