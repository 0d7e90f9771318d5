from tileseer.core.script import Input, Output, Resource, Settings, stage_script


@stage_script()
def main(
    dataset: Input, training: Input, template: Input, api: Input, coefficients: Input, output: Output,
    settings: Settings, layers: Input | None = None, threads: Resource = 1,
) -> str:  # fmt: skip
    """Make what a dispatcher runs of a trained model: C++ header, arrays for Python, known problems, kernel list.

    template: template of the C++ header
    api: table of CK Tile names, for the registry keys
    coefficients: of the resource estimates
    output: folder of the files
    """
    from tileseer.serve import serving as stage

    inputs = stage.ServingInputs.read(template, api, coefficients, layers, settings)
    served, summary = stage.serve_training(dataset, training, inputs, threads)
    served.save(output)
    return summary
