"""All tables of the named rule sets, read at once from ``config/rule_sets``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tileseer.core.tables import read
from tileseer.reference.builder_tables import BuilderRules
from tileseer.reference.named_tables import DefaultRules, FullRules


@dataclass(frozen=True)
class RuleTables:
    """The tables of all named rule sets."""

    default: DefaultRules
    full: FullRules
    builder: BuilderRules

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Read the files of ``directory``; a ``UserError`` names file, field and value."""
        folder = Path(directory)
        return cls(
            read(folder / "default.yaml", DefaultRules),
            read(folder / "full.yaml", FullRules),
            read(folder / "builder.yaml", BuilderRules),
        )
