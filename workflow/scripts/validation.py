from tileseer.core.script import Input, Output, Resource, Settings, stage_script


@stage_script()
def main(
    dataset: Input, training: Input, coefficients: Input, validation: Output, settings: Settings,
    uses: Input | None = None, baseline: Input | None = None, layers: Input | None = None,
    threads: Resource = 1,
) -> str:  # fmt: skip
    """Score a trained model on the validation split of its dataset: problems that it has never seen.

    baseline: folder that the baseline stage wrote, to compare with
    """
    from tileseer.config.benchmark import BenchmarkSettings
    from tileseer.config.model import ValidationSettings
    from tileseer.core import documents
    from tileseer.costmodel.coefficients import load_coefficients
    from tileseer.dataset.dataset import Dataset
    from tileseer.learn import studies
    from tileseer.learn.model import Model
    from tileseer.learn.ranking import has_validation_split
    from tileseer.learn.validation import Context, summarize_report, validate_model
    from tileseer.problems import layers as layer_tables
    from tileseer.problems.problem_table import read_uses

    data = Dataset.read(dataset)
    model = Model.read_for(training, data, dataset)
    deviation = BenchmarkSettings.of(settings, "benchmark").parameters.simulated_deviation
    simulated = load_coefficients(coefficients, deviation) if data.device_kind == "simulated" else None
    recipe = studies.recipe_of(model, threads)
    if has_validation_split(data):
        networks = layer_tables.read_networks(layers) if layers else {}
        reference = model.with_trees_of(baseline) if baseline else None
        trains = [name for name, network in networks.items() if network.trains]
        context = Context(simulated, reference, read_uses(uses), trains)
        requested = ValidationSettings.of(settings, "validation")
        report = validate_model(model, data, context, threads)
        report = studies.with_studies(report, data, recipe, requested)
    else:
        report = studies.validate_by_layer(data, recipe, simulated)
    documents.write_document(validation, report)
    return summarize_report(report)
