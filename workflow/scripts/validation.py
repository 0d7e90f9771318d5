from pathlib import Path

from tileseer.core.script import Settings, stage_script


@stage_script
def main(
    dataset: Path, training: Path, coefficients: Path, validation: Path, settings: Settings,
    uses: Path | None = None, layers: Path | None = None, threads: int = 1,
) -> str:  # fmt: skip
    """Score a trained model on the validation split of its dataset: problems that it has never seen."""
    from tileseer.config.benchmark import BenchmarkSettings
    from tileseer.core import documents
    from tileseer.dataset.dataset import Dataset
    from tileseer.kernels.costs.coefficients import load_coefficients
    from tileseer.learn.left_out import left_out, recipe_of
    from tileseer.learn.model import Model
    from tileseer.learn.ranking import has_validation_split
    from tileseer.learn.validation import Context, report_of, summarize_report, validate_model
    from tileseer.problems import layers as layer_tables
    from tileseer.problems.problem_table import read_uses

    data = Dataset.read(dataset)
    model = Model.read_for(training, data, dataset)
    data = data.with_estimates(model.hardware, load_coefficients(coefficients))
    deviation = BenchmarkSettings.of(settings, "benchmark").parameters.simulated_deviation
    simulated = load_coefficients(coefficients, deviation) if data.device_kind == "simulated" else None
    if has_validation_split(data):
        networks = layer_tables.read_networks(layers) if layers else {}
        trains = [name for name, network in networks.items() if network.trains]
        context = Context(simulated, read_uses(uses), trains)
        report = validate_model(model, data, context, threads)
    else:
        report = report_of(left_out(data, recipe_of(model, threads)), model.hardware, Context(simulated))
    documents.write_document(validation, report)
    return summarize_report(report)
