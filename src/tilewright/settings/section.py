"""What every section of the configuration has in common: closed, typed, and clear about a wrong field."""

from __future__ import annotations

import json
from typing import Annotated, Self

from pydantic import ConfigDict, StringConstraints

from tilewright.errors import UserError
from tilewright.tables import Table, checked

RelativePath = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./+-]*$")]
"""A path inside the workflow: relative and free of characters that a shell would read."""


class Section(Table):
    """A closed section of the configuration; a rule hands it to its script as JSON."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the settings that a rule handed to its script; a ``UserError`` names each wrong field."""
        try:
            content = json.loads(text)
        except ValueError as error:
            raise UserError(f"--settings: this is no JSON: {error}") from error
        return checked(content, cls, "--settings")

    def to_json(self) -> str:
        """Return canonical JSON: what a rule hands to its script, and what Snakemake compares."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True)
