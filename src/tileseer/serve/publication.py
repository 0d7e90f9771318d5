"""Publishing: training, validation and serving become one model directory."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tileseer.core import documents
from tileseer.core.atomic import building
from tileseer.core.documents import read_json
from tileseer.core.errors import UserError
from tileseer.core.strict_tables import validate_table
from tileseer.learn import model_files
from tileseer.learn.model import training_files
from tileseer.learn.model_files import INDEX, KERNELS, PAGE, PROVENANCE, SPEC, Entry, Index
from tileseer.learn.model_schema import OF_A_DEVICE, Manifest, Origin, same_origin
from tileseer.serve.model_page import model_page
from tileseer.serve.provenance import Provenance

KEPT_KIND = "measured"
"""Models of such times are replaced by others of their kind only."""


def refuse_replacement(models: Path, arch: str, device_kind: str, replace: bool) -> None:
    """Raise a ``UserError`` if models of a GPU's times would be replaced by those of recorded or simulated times."""
    if replace or device_kind == KEPT_KIND:
        return
    try:
        published = model_files.parse_index(models)
    except UserError:
        # There are no models, or none that a program could load.
        return
    if published.device_kind == KEPT_KIND:
        raise UserError(
            f"{models}: its models are of {KEPT_KIND} times ({published.device}), and this run makes models of "
            f"{device_kind} times for {arch}: move the folder away to keep it, or replace it: write "
            "`publish: {replace: true}` into a file and add --configfile with its name"
        )


def publish_models(
    trainings: Sequence[Path],
    evaluations: Sequence[Path],
    servings: Sequence[Path],
    output: Path,
    provenance: Provenance | None = None,
    *,
    page: Path,
    replace: bool = False,
) -> Index:
    """Write the model directory ``output`` from training folders, evaluations and serving folders; return the
    index.

    The directory is built beside its place and changes places with what was published there. ``page`` is the template
    of its ``README.md``; ``replace``: models of a GPU's times may be replaced by others. ``UserError`` unless there is
    one of each for every operation, and all are of one arch, device and device kind; then what was published stays.
    """
    kinds = ((trainings, SPEC), (evaluations, ""), (servings, KERNELS))
    trained, evaluated, served = (_by_operation([path / name for path in paths]) for paths, name in kinds)
    if not trained or not trained.keys() == evaluated.keys() == served.keys():
        raise UserError(
            f"publish: trainings of {', '.join(trained)}, evaluations of {', '.join(evaluated)} and serving "
            f"folders of {', '.join(served)}; give one of each for every operation"
        )
    (first_file, first), *others = (*trained.values(), *evaluated.values(), *served.values())
    for file, origin in others:
        same_origin(file, origin, first, first_file, "one directory holds the models of one device")
    refuse_replacement(output, first.arch, first.device_kind, replace)
    recordings = {name: one.measurements.recording for name, one in provenance.operations.items()} if provenance else {}
    index = Index(
        format=model_files.FORMAT,
        tileseer=model_files.READERS,
        **first.model_dump(include=set(OF_A_DEVICE)),
        operations={name: Entry(folder=f"grouped_conv_{name}_{first.arch}") for name in sorted(trained)},
        sha256={},
    )
    for name, one in provenance.operations.items() if provenance else ():
        _refuse_other_dataset(trained[name][0].with_name(model_files.MANIFEST), one.inputs)
    with building(output) as made:
        for name, entry in index.operations.items():
            (made / entry.folder).mkdir()
            spec, evaluation, serving = (one[name][0] for one in (trained, evaluated, served))
            for own in training_files(spec.parent):
                _copy(spec.with_name(own), made / entry.folder / own, f"train {name} again")
            for own in model_files.SERVING_FILES:
                _copy(serving.with_name(own), made / entry.folder / own, f"serve {name} again")
            for own, suffix in ((model_files.EVALUATION, ".json"), (model_files.LAYERS, ".parquet")):
                _copy(evaluation.with_suffix(suffix), made / entry.folder / own, f"evaluate {name} again")
        if provenance is not None:
            documents.write_document(made / PROVENANCE, provenance)
        (made / PAGE).write_text(model_page(made, index, page, recordings), encoding="utf-8")
        index = index.model_copy(update={"sha256": model_files.file_digests(made)})
        documents.write_document(made / INDEX, index)
        model_files.read_index(made)
    return index


def _refuse_other_dataset(manifest: Path, inputs: Mapping[str, str]) -> None:
    """Raise a ``UserError`` if a model was trained on other tables than those of its provenance."""
    learnt = documents.read_document(manifest, Manifest).dataset
    for path, digest in inputs.items():
        if learnt.get(Path(path).name, digest) != digest:
            raise UserError(f"{path}: is another table than the model was trained on ({manifest}); run it again")


def _by_operation(files: Sequence[Path]) -> dict[str, tuple[Path, Origin]]:
    """Return each spec, report or figures of serving with what it belongs to."""
    origins: dict[str, tuple[Path, Origin]] = {}
    for path in files:
        content = read_json(path)
        fields = content if isinstance(content, dict) else {}
        own = {name: fields[name] for name in Origin.model_fields if name in fields}
        origin = validate_table(own, Origin, str(path))
        if origin.operation in origins:
            raise UserError(f"{path}: {origin.operation} occurs twice, first in {origins[origin.operation][0]}")
        origins[origin.operation] = path, origin
    return origins


def _copy(source: Path, target: Path, fix: str) -> None:
    if not source.is_file():
        raise UserError(f"{source}: there is no such file; {fix}")
    if source.suffix == ".json":
        read_json(source)  # whatever is wrong with it is told before it is published
    shutil.copyfile(source, target)
