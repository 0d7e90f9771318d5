from pathlib import Path

from tileseer.core.script import stage_script


@stage_script
def main(
    dataset: Path, training: Path, serving: Path, coefficients: Path, evaluation: Path, layers: Path,
    uses: Path | None = None, library_times: list[Path] = (), threads: int = 1,
) -> str:  # fmt: skip
    """Evaluate the picks that ship on layers that no model has seen.

    layers: table of these layers to write
    library_times: files of a recording with times of other libraries, and its problems.parquet
    """
    import numpy as np

    from tileseer.core import documents
    from tileseer.data.dataset import Dataset
    from tileseer.judge.evaluation import Context, evaluate
    from tileseer.judge.layers import write_layers
    from tileseer.judge.ranking import rank_held_out, rank_left_out, recipe_of
    from tileseer.learn.model import Model
    from tileseer.libraries.costs.coefficients import load_coefficients
    from tileseer.libraries.registry import times_of_libraries
    from tileseer.measure.simulated_device import SimulatedDevice
    from tileseer.problems.problem_table import read_uses
    from tileseer.serve.selector import Selector

    data = Dataset.read(dataset)
    model = Model.read_for(training, data, dataset, threads)
    data = data.with_estimates(model.hardware, load_coefficients(coefficients))

    def served(dims: np.ndarray) -> np.ndarray:
        return Selector.of_serving(model, serving).select(dims, use_known=False).candidate

    simulated = SimulatedDevice(model.hardware, load_coefficients(coefficients), seed=0)
    truth = simulated.truth_us if data.device_kind == simulated.kind else None
    context = Context(read_uses(uses), times_of_libraries(library_times), truth)
    if data.held_out.any():
        ranked = rank_held_out(model, data, served)
    else:
        ranked = rank_left_out(data, recipe_of(model, threads), model.spec.evidence)
    found, judged = evaluate(ranked, model.hardware, context)
    write_layers(layers, judged)
    documents.write_document(evaluation, found)
    return found.summary
