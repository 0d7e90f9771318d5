"""A model directory as an RO-Crate 1.1: the models, and metadata that other people's tools read.

See https://w3id.org/ro/crate/1.1. It is one JSON document without a time of its own, so no library is needed for it.
"""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from tileseer.core import documents
from tileseer.core.atomic import building, write_text
from tileseer.core.errors import UserError
from tileseer.learn import index as published
from tileseer.learn import model_files
from tileseer.serve.provenance import Provenance, read_provenance

FILE = "ro-crate-metadata.json"
CONTEXT = "https://w3id.org/ro/crate/1.1/context"
PROFILE = "https://w3id.org/ro/crate/1.1"
MODELS = "models/"
_DAY = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", re.ASCII)


def write_crate(models: Path, output: Path, date: str | None = None, licence: str | None = None) -> Path:
    """Write the crate ``output``: a copy of the model directory, and its metadata; return the metadata file.

    ``date``: the day it was published, by default that of the commit; ``licence``: a URL. ``UserError`` if ``output``
    exists, the models do not say what made them, or nobody knows a date.
    """
    made = read_provenance(models)
    if output.exists():
        raise UserError(f"{output}: exists already; remove it or name another folder")
    day = date or made.source.date
    if day is None:
        raise UserError(f"{models}: no commit is known, so no date: give the day of publication as --date 2026-11-21")
    if not _DAY.fullmatch(day):
        raise UserError(f"--date is {day!r}; write the day as 2026-11-21")
    index = published.verify(models)
    content = metadata(made, index, {name: (models / name).stat().st_size for name in index.sha256}, day, licence)
    with building(output) as crate:
        shutil.copytree(models, crate / MODELS, ignore=shutil.ignore_patterns(".*"))
        write_text(crate / FILE, documents.json_text(content))
    return output / FILE


def metadata(
    made: Provenance, index: published.Index, sizes: dict[str, int], day: str, licence: str | None
) -> dict[str, object]:
    """The JSON-LD of the crate; ``sizes`` are bytes of each file of the index."""
    files = [_file(MODELS + name, digest, sizes[name]) for name, digest in sorted(index.sha256.items())]
    files.append({"@id": MODELS + model_files.INDEX, "@type": "File", "encodingFormat": "application/json"})
    kinds = sorted({one.measurements.device_kind for one in made.operations.values()})
    inputs = made.files | {path: digest for one in made.operations.values() for path, digest in one.inputs.items()}
    root: dict[str, object] = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"Kernel selection models for {made.arch}",
        "description": (
            f"Models of tileseer {made.tileseer} that choose a grouped-convolution kernel on {made.arch}: "
            f"{', '.join(made.operations)}. They learnt from {' and '.join(kinds)} times."
        ),
        "datePublished": day,
        "hasPart": [{"@id": file["@id"]} for file in files],
        "mentions": {"@id": "#training"},
    }
    graph: list[Mapping[str, object]] = [
        {"@id": FILE, "@type": "CreativeWork", "about": {"@id": "./"}, "conformsTo": {"@id": PROFILE}},
        root,
        *files,
        {
            "@id": "#training",
            "@type": "CreateAction",
            "name": "The run of the workflow that published the models",
            "instrument": [{"@id": "#tileseer"}, *({"@id": f"#package-{name}"} for name in made.packages)],
            "object": [{"@id": f"#{path}"} for path in sorted(inputs)],
            "result": {"@id": "./"},
        },
        {
            "@id": "#tileseer",
            "@type": "SoftwareApplication",
            "name": "tileseer",
            "softwareVersion": made.tileseer,
            "identifier": made.source.commit or "unknown commit",
        },
        *(
            {"@id": f"#package-{name}", "@type": "SoftwareApplication", "name": name, "softwareVersion": version}
            for name, version in made.packages.items()
        ),
        *(
            {"@id": f"#{path}", "@type": "CreativeWork", "name": path, "identifier": f"sha256:{inputs[path]}"}
            for path in sorted(inputs)
        ),
    ]
    if licence:
        root["license"] = {"@id": licence}
        graph.append({"@id": licence, "@type": "CreativeWork", "name": licence})
    return {"@context": CONTEXT, "@graph": graph}


def _file(name: str, digest: str, size: int) -> dict[str, object]:
    formats = {".json": "application/json", ".parquet": "application/vnd.apache.parquet", ".hpp": "text/x-c++hdr"}
    return {
        "@id": name,
        "@type": "File",
        "contentSize": str(size),
        "encodingFormat": formats.get(Path(name).suffix, "text/plain"),
        "identifier": f"sha256:{digest}",
    }
