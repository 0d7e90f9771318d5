from pathlib import Path

from tileseer.core.script import Settings, stage_script


@stage_script
def main(
    dataset: Path, training: Path, serving: Path, coefficients: Path, evaluation: Path, settings: Settings,
    uses: Path | None = None, library_times: list[Path] = (), earlier: Path | None = None, threads: int = 1,
) -> str:  # fmt: skip
    """Evaluate the picks that ship on layers that no model has seen.

    earlier: dataset of the times that a recording replaced
    library_times: cudnn.csv, or rivals.parquet with its problems.parquet, of a recording
    """
    from tileseer.core import documents
    from tileseer.data.dataset import Dataset
    from tileseer.data.library_times import read_library_times
    from tileseer.learn.model import Model
    from tileseer.libraries.costs.coefficients import load_coefficients
    from tileseer.problems.problem_table import read_uses
    from tileseer.serve.evaluation import Context, evaluate

    data = Dataset.read(dataset)
    model = Model.read_for(training, data, dataset)
    data = data.with_estimates(model.hardware, load_coefficients(coefficients))
    simulated = load_coefficients(coefficients) if data.device_kind == "simulated" else None
    context = Context(
        read_uses(uses), read_library_times(library_times), simulated, Dataset.read(earlier) if earlier else None
    )
    found = evaluate(data, model, serving, context, threads)
    documents.write_document(evaluation, found)
    return found.summary
