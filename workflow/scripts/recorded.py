from __future__ import annotations

from tileseer.core.script import Folder, Input, Output, Settings, row_of_product, stage_script


@stage_script(hardware=row_of_product)
def main(
    operation: str, recording: Folder, hardware: Input, coefficients: Input, product: str, dataset: Output,
    tables: list[Input] = (), arch: str = "", settings: Settings = "{}",
) -> str:  # fmt: skip
    """Replay what a real GPU measured: one operation of a recording as a dataset.

    recording: folder with recording.json
    coefficients: of the estimates of kernels that no compiler described
    tables: files of the recording that this operation reads
    """
    from tileseer.core import parquet
    from tileseer.costmodel.coefficients import load_coefficients
    from tileseer.dataset import recording as recordings
    from tileseer.gpus.hardware import read_hardware
    from tileseer.problems.operation import Operation

    gpu, fitted = read_hardware(hardware, product), load_coefficients(coefficients)
    table = recordings.dataset(recording, Operation.parse(operation), gpu, fitted)
    parquet.write_table(table, dataset)
    counts = table["status"].combine_chunks().value_counts().to_pylist()
    found = ", ".join(f"{count['counts']:,} {count['values']}" for count in counts)
    return f"{recording} has {found} pairs (recorded)"
