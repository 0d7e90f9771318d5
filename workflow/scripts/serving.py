from pathlib import Path

from tileseer.core.script import stage_script


@stage_script
def main(
    dataset: Path, training: Path, template: Path, api: Path, coefficients: Path, output: Path, threads: int = 1,
) -> str:  # fmt: skip
    """Make what a dispatcher runs of a trained model: C++ header, known problems, kernel list.

    template: template of the C++ header
    api: table of CK Tile names, for the registry keys
    coefficients: of the resource estimates
    output: folder of the files
    """
    from tileseer.data.dataset import Dataset
    from tileseer.learn.model import Model
    from tileseer.libraries.costs.coefficients import load_coefficients
    from tileseer.serve.serving import ServingInputs, serve_model

    inputs = ServingInputs(template, api, load_coefficients(coefficients))
    measurements = Dataset.read(dataset)
    served = serve_model(measurements, Model.read_for(training, measurements, dataset, threads), inputs)
    served.save(output)
    few = served.kernels
    return f"{few.pruned_size} of {few.pool_size} kernels lose at most {100 * few.allowed_loss:g} % against all"
