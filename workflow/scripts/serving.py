from pathlib import Path

from tileseer.core.script import Settings, stage_script


@stage_script
def main(
    dataset: Path, training: Path, validation: Path, template: Path, api: Path, coefficients: Path,
    output: Path, settings: Settings, uses: Path | None = None, library_times: list[Path] = (),
    threads: int = 1,
) -> str:  # fmt: skip
    """Make what a dispatcher runs of a trained model: C++ header, arrays for Python, known problems, kernel list.

    validation: report of the model with all its trees
    library_times: cudnn.csv, or rivals.parquet with its problems.parquet, of a recording
    template: template of the C++ header
    api: table of CK Tile names, for the registry keys
    coefficients: of the resource estimates
    output: folder of the files
    """
    from tileseer.serve import serving as stage

    inputs = stage.ServingInputs.read(template, api, coefficients, settings)
    evaluated_with = stage.EvaluationInputs.read(validation, uses, library_times)
    served, summary = stage.serve_training(dataset, training, inputs, evaluated_with, threads)
    served.save(output)
    return summary
