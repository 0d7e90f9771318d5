"""What every section of the configuration has in common: closed, typed, and clear about a wrong field."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, ConfigDict, StringConstraints, ValidationInfo

from tileseer.core.strict_tables import StrictModel, expected, validate_table

WORKFLOW = "workflow"
"""The folder of the workflow, in the context of a validation that says where files are."""


def _stays_inside(path: str) -> str:
    if ".." in Path(path).parts:
        raise ValueError("the path leaves the workflow's folder; name one without ..")
    return path


def _located(path: str, info: ValidationInfo) -> str:
    workflow = (info.context or {}).get(WORKFLOW)
    own = os.path.join(workflow or "", path)
    # Unlike a Path, it says no of a name that is too long.
    return Path(own).as_posix() if os.path.exists(own) and not os.path.exists(path) else path


PATH_PATTERN = r"^(\.\./)*[A-Za-z0-9_][A-Za-z0-9_./+-]*$"
"""Of a path in a configuration, seen from the folder of the run: free of characters that a shell would read."""
RelativePath = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./+-]*$"),
    expected("a relative path of letters, digits and _ . / + -"),
    AfterValidator(_stays_inside),
]
"""A path inside the workflow: relative and free of characters that a shell would read."""
SourcePath = Annotated[
    str,
    StringConstraints(pattern=PATH_PATTERN),
    expected("a relative path of letters, digits and _ . / + -, seen from the folder of the run"),
    AfterValidator(_located),
]
"""The relative path of a table that the workflow brings, or that its user has."""
AbsolutePath = Annotated[str, StringConstraints(pattern="^[/~]"), expected("an absolute path, such as /data/cache")]


class Section(StrictModel):
    """A closed section of the configuration."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    @classmethod
    def of(cls, settings: Mapping[str, Any], name: str) -> Self:
        """Return section ``name`` of a stage's settings; a ``UserError`` names each wrong field."""
        return validate_table(settings.get(name, {}), cls, f"--settings: {name}")

    def located(self, workflow: str) -> Self:
        """Copy with each source file where it is.

        That is the working folder if the file is there, else ``workflow``, the folder of the workflow: they differ
        where another workflow uses this one as a module.
        """
        return type(self).model_validate(self.model_dump(), context={WORKFLOW: workflow})
