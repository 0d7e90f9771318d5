from __future__ import annotations

from tileseer.core.stage import Input, Output, Place, Settings, stage


@stage()
def main(
    operation: str, recording: Place, hardware: Input, coefficients: Input, product: str, dataset: Output,
    tables: list[Input] = (), arch: str = "", settings: Settings = "{}",
) -> str:  # fmt: skip
    """Replay what a real GPU measured: one operation of a recording as a dataset.

    recording: folder with recording.json
    coefficients: of the estimates of kernels that no compiler described
    tables: files of the recording that this operation reads
    """
    from tileseer.conv.operation import Operation
    from tileseer.core import parquet
    from tileseer.dataset import recording as recordings
    from tileseer.families.coefficients import load_coefficients
    from tileseer.gpu import hardware as products

    gpu, fitted = products.get(hardware, product), load_coefficients(coefficients)
    table = recordings.dataset(recording, Operation.parse(operation), gpu, fitted)
    parquet.write(table, dataset)
    counts = table["status"].combine_chunks().value_counts().to_pylist()
    found = ", ".join(f"{count['counts']:,} {count['values']}" for count in counts)
    return f"{recording} has {found} pairs (recorded)"
