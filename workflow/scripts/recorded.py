from pathlib import Path

from tileseer.core.script import stage_script


@stage_script
def main(operation: str, hardware: Path, product: str, coefficients: Path, tables: list[Path], dataset: Path) -> str:
    """Replay what a real GPU measured: one operation of a recording as a dataset.

    coefficients: of the estimates of kernels that no compiler described
    tables: files of the recording that this operation reads, recording.json first
    """
    from tileseer.core import parquet
    from tileseer.dataset import recording as recordings
    from tileseer.gpus.hardware import read_hardware
    from tileseer.kernels.costs.coefficients import load_coefficients
    from tileseer.problems.operation import Operation

    recording = tables[0].parent
    gpu, fitted = read_hardware(hardware, product), load_coefficients(coefficients)
    table = recordings.recorded_dataset(recording, Operation.parse(operation), gpu, fitted)
    parquet.write_table(table, dataset)
    counts = table["status"].combine_chunks().value_counts().to_pylist()
    statuses = ", ".join(f"{count['counts']:,} {count['values']}" for count in counts)
    return f"{recording} has {statuses} pairs (recorded)"
