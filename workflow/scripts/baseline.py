from tileseer.core.script import Input, Output, Resource, Settings, row_of_product, stage_script


@stage_script(hardware=row_of_product)
def main(
    dataset: Input,
    hardware: Input,
    product: str,
    output: Output,
    settings: Settings,
    trees: int | None = None,
    threads: Resource = 1,
) -> str:
    """Train the reference's model of one operation on the rows that ours learns from: a baseline for validation.

    output: folder of the model and its spec
    trees: without it, as many as the reference has
    """
    from tileseer.config.model import ModelSettings
    from tileseer.core import documents
    from tileseer.core.atomic import write_text
    from tileseer.dataset.dataset import Dataset
    from tileseer.gpus.hardware import read_hardware
    from tileseer.learn import model_files, reference_trainer

    data, gpu = Dataset.read(dataset), read_hardware(hardware, product)
    parameters, count = ModelSettings.of(settings, "model").parameters, trees or reference_trainer.TREES
    model, spec = reference_trainer.fit_reference(data, gpu, parameters, threads, count)
    write_text(output / model_files.MODEL, model)
    documents.write_document(output / model_files.SPEC, spec)
    kind = data.device_kind
    return f"the reference's trainer made {spec.trees} trees of {spec.training_rows:,} {kind} rows"
