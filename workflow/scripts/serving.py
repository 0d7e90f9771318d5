from __future__ import annotations

from tileseer.core.script import Input, Output, Resource, Settings, stage_script


@stage_script()
def main(
    dataset: Input, training: Input, template: Input, api: Input, coefficients: Input, output: Output,
    layers: Input | None = None,
    arch: str = "", operation: str = "", threads: Resource = 1, settings: Settings = "{}",
) -> str:  # fmt: skip
    """Make what a dispatcher runs of a trained model: C++ header, arrays for Python, known problems, kernel list.

    template: template of the C++ header
    api: table of CK Tile names, for the registry keys
    coefficients: of the resource estimates
    output: folder of the files
    """
    from tileseer.serve import serving as stage

    served, told = stage.serve(dataset, training, template, api, coefficients, layers, threads, settings)
    served.save(output)
    return told
