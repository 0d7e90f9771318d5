"""The files of docs/generated/schemas: a JSON Schema of each file that crosses rooms."""

import ast
import inspect
import json
import textwrap
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import ModelSchema

from tileseer.data.provenance import Recording
from tileseer.facts.hardware import Hardware
from tileseer.judge.evaluation import Evaluation
from tileseer.learn.learners.trees.scorer import Cuts, Importances
from tileseer.learn.model_files import Index
from tileseer.learn.model_schema import FeatureSpec, Manifest
from tileseer.libraries.costs.coefficients import Coefficients
from tileseer.measure.receipt import Receipt
from tileseer.serve.provenance import Provenance
from tileseer.serve.serving_files import Kernels

FOLDER = Path(__file__).parents[1] / "docs/generated/schemas"
FILES: tuple[tuple[str, type[BaseModel], str], ...] = (
    ("receipt.json", Receipt, "`results/benchmark/ARCH/OPERATION/CHUNK.json`"),
    ("recording.json", Recording, "a recording, such as `config/recorded/sm_90/recording.json`"),
    ("feature_spec.json", FeatureSpec, "training folder, published model, baseline"),
    ("train_manifest.json", Manifest, "training folder, published model"),
    ("feature_importances_tflops.json", Importances, "training folder, published model"),
    ("hardware.json", Hardware, "training folder, published model"),
    ("cuts.json", Cuts, "training folder, published model"),
    ("kernels.json", Kernels, "serving folder, published model"),
    ("evaluation.json", Evaluation, "`results/evaluation/ARCH/OPERATION.json`, published model"),
    ("resource_estimates.json", Coefficients, "serving folder, published model; of CUTLASS only a `meaning`"),
    ("index.json", Index, "published models of an arch"),
    ("provenance.json", Provenance, "published models of an arch"),
)
"""Name of the file, type of its content, and where it lies; a line here is all that another file needs."""
HEAD = """# JSON files

A schema for each JSON file that one stage writes and another one, or you, read. `make schema` writes them from the
types in the code, which check every file that is read. The columns of the dataset are in
[data.md](../../internals/data.md#dataset).

| file | where | content |
|---|---|---|
"""


def pages() -> dict[str, str]:
    """Every file of docs/generated/schemas by its name."""
    found = {"README.md": HEAD}
    for name, kind, place in FILES:
        summary = (kind.__doc__ or "").split("\n\n")[0].replace("\n", " ").replace("``", "`").strip()
        schema, file = kind.model_json_schema(schema_generator=Described), f"{Path(name).stem}.schema.json"
        found["README.md"] += f"| [`{name}`]({file}) | {place} | {summary} |\n"
        found[file] = json.dumps({"$schema": Described.schema_dialect, **schema}, indent=2) + "\n"
    return found


class Described(GenerateJsonSchema):
    """Makes the JSON Schema of a type, with the docstrings of its fields as descriptions."""

    def model_schema(self, schema: ModelSchema) -> dict[str, Any]:
        """Return the schema of a class."""
        made, model = super().model_schema(schema), schema["cls"]
        properties = made.get("properties", {})
        for field, text in _docstrings(model).items():
            properties.get(model.model_fields[field].alias or field, {}).setdefault("description", text)
        return made


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The texts under the fields of a class and of those that it extends."""
    found: dict[str, str] = {}
    for base in model.__mro__:
        if base is BaseModel or not issubclass(base, BaseModel) or "[" in base.__name__:
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
                value = text.value
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found.setdefault(field.target.id, inspect.cleandoc(value.value).replace("\n", " "))
    return {field: text for field, text in found.items() if field in model.model_fields}
