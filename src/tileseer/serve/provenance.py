"""Provenance of published models: commit, configuration, packages, compiler, device, measurements, hashes of inputs.

The publish stage writes it beside the models. It has no time, host or path of a machine: the same inputs, settings and
packages on the same commit give the same bytes. The commit is that of the workflow's checkout when it published; a
later commit that changes nothing of the models publishes nothing, so what is written stays true.
"""

import hashlib
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field, JsonValue

from tileseer.core import code_digest, documents, parquet, seal
from tileseer.core.checkout import Source, source_of
from tileseer.core.errors import UserError
from tileseer.core.strict_tables import StrictModel
from tileseer.data.dataset_files import describe
from tileseer.data.provenance import Recording
from tileseer.learn import model_files

PROVENANCE_FORMAT = 1
PACKAGES_OF_RESULTS = (
    "jinja2", "lightgbm", "numpy", "pandas", "pyarrow", "pydantic", "pyelftools", "scipy", "snakemake",
)  # fmt: skip
"""Packages whose version may change a number or a text of the results."""
NOT_INSTALLED = "not installed"
SOURCES = ("Snakefile", "config", "src", "workflow")
"""Folders of a checkout that results depend on."""
CODE_FILES = ("Snakefile", "src/**/*.py", "workflow/**/*")
"""Files of the workflow's folder that are code: their digest is written even where there is no commit."""


class Measurements(StrictModel):
    """The dataset of one operation."""

    device: str
    device_kind: str
    measurement_id: str
    """Digest of the device and of how it measures; see docs/internals/architecture.md."""
    pairs_by_status: dict[str, int]
    recording: Recording | None = None
    """Of a recorded arch: where the recording comes from."""


class Made(StrictModel):
    """What one operation's model was made from."""

    measurements: Measurements
    inputs: dict[str, str]
    """SHA-256 of the tables of earlier stages, by path."""


class Provenance(StrictModel):
    """What made the models of a directory."""

    format: int
    arch: str
    tileseer: str
    source: Source
    python: str
    packages: dict[str, str]
    config: dict[str, JsonValue]
    compiler: dict[str, JsonValue]
    operations: dict[str, Made]
    libc: str = ""
    """The C library, whose mathematical functions the packages call: of the system's packages, results depend on it
    and on Python alone."""
    code_sha256: str = ""
    """Digest of the workflow's code, whatever was committed."""
    files: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of the files that stages read and none made: hardware, rules, problems, recordings, by path."""


def collect_provenance(
    arch: str,
    config: Mapping[str, JsonValue],
    compiler: Mapping[str, JsonValue],
    operations: Sequence[str],
    tables: Sequence[Path],
    workflow: Path,
    files: Sequence[Path] = (),
) -> Provenance:
    """Return the provenance of the models of one arch.

    ``tables`` are those of the operations in turn, as many for each, its problems first; ``workflow`` is the folder of
    the Snakefile; ``files`` are what stages read and none made.
    """
    each = len(tables) // max(1, len(operations))
    made = {name: _made(*tables[i * each : (i + 1) * each]) for i, name in enumerate(operations)}
    return Provenance(
        format=PROVENANCE_FORMAT,
        arch=arch,
        tileseer=code_digest.version_of("tileseer") or NOT_INSTALLED,
        source=source_of(workflow, SOURCES),
        python=platform.python_version(),
        packages={name: code_digest.version_of(name) or NOT_INSTALLED for name in PACKAGES_OF_RESULTS},
        libc=" ".join(platform.libc_ver()),
        config=dict(config),
        compiler=dict(compiler),
        operations=dict(sorted(made.items())),
        code_sha256=digest_of_checkout(workflow),
        files={path.as_posix(): seal.file_digest(path) for path in sorted(files)},
    )


def digest_of_checkout(workflow: Path) -> str:
    """Return the SHA-256 of the names and contents of the code in the workflow's folder."""
    code = {
        path for pattern in CODE_FILES for path in workflow.glob(pattern) if path.is_file() and path.suffix != ".pyc"
    }
    lines = sorted(f"{path.relative_to(workflow).as_posix()} {seal.file_digest(path)}\n" for path in code)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _made(*tables: Path) -> Made:
    source, _ = describe(tables[0].parent)
    pairs = tables[0].with_name("pairs.parquet")
    counts = parquet.read_table(pairs, columns=["status"])["status"].cast("string").value_counts().to_pylist()
    hashes = {}
    for path in tables:
        hashes[path.as_posix()] = seal.file_digest(path)
    return Made(
        measurements=Measurements(
            device=source.device,
            device_kind=source.kind,
            measurement_id=str(source.measurement_id),
            pairs_by_status={row["values"]: row["counts"] for row in sorted(counts, key=lambda row: row["values"])},
            recording=source if source.kind == "recorded" else None,
        ),
        inputs=hashes,
    )


def read_provenance(models: Path) -> Provenance:
    """Return what made the models of a directory, after checking all hashes."""

    def read() -> Provenance:
        name = model_files.PROVENANCE
        if name not in model_files.read_index(models).sha256:
            raise UserError(
                f"{models / name}: there is no such file, so the origin of the models is missing; publish them again"
            )
        return documents.read_document(models / name, Provenance)

    return model_files.of_one_version(models, read)
