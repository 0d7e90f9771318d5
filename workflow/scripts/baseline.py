from __future__ import annotations

from tileseer.core.stage import Input, Output, Resource, Settings, stage


@stage()
def main(
    dataset: Input, hardware: Input, product: str, output: Output,
    trees: int | None = None, arch: str = "", operation: str = "", threads: Resource = 1, settings: Settings = "{}",
) -> str:  # fmt: skip
    """Train the reference's model of one operation on the rows that ours learns from: a baseline for validation.

    output: folder of the model and its spec
    trees: without it, as many as the reference has
    """
    from tileseer.baseline import reference_trainer
    from tileseer.core import documents
    from tileseer.core.atomic import write_text
    from tileseer.dataset import schema
    from tileseer.gpu import hardware as products
    from tileseer.model import model_files
    from tileseer.settings.model import ModelSettings

    measurements, gpu = schema.load(dataset), products.get(hardware, product)
    asked, count = ModelSettings.of(settings, "model").parameters, trees or reference_trainer.TREES
    model, spec = reference_trainer.train(measurements, gpu, asked, threads, count)
    write_text(output / model_files.MODEL, model)
    documents.write(output / model_files.SPEC, spec, sealed=False)
    kind = measurements.device_kind
    return f"the reference's trainer made {spec.trees} trees of {spec.training_rows:,} {kind} rows"
