from tileseer.core.script import Input, Output, Resource, Settings, stage_script


@stage_script()
def main(
    dataset: Input, training: Input, validation: Input, template: Input, api: Input, coefficients: Input,
    output: Output, settings: Settings, uses: Input | None = None, library_times: list[Input] = (),
    threads: Resource = 1,
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
