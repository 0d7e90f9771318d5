from pathlib import Path

from tileseer.core.script import stage_script


@stage_script
def main(operation: str, build: Path, problems: Path, hardware: Path, product: str, support: Path) -> str:
    """Decide by our rules, without a GPU, which pairs of one chunk's kernels and the problems can run."""
    from tileseer.core import parquet
    from tileseer.measure.support_table import decide_support, supported

    table = decide_support(operation, build, problems, hardware, product)
    parquet.write_table(table, support)
    return f"{table.filter(supported(table)).num_rows:,} of {table.num_rows:,} pairs of problem and kernel can run"
