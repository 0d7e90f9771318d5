"""The coefficients of the simulated device; config/simulated_device.yaml explains each and its basis."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from tileseer.core import strict_tables
from tileseer.facts.operations import VARIANTS
from tileseer.libraries.ck_tile.kernel import PIPELINES, SPECIALIZATIONS

_Positive = Annotated[float, Field(gt=0)]
_NotNegative = Annotated[float, Field(ge=0)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Count = Annotated[int, Field(ge=1, le=10_000)]


class Iteration(strict_tables.StrictModel):
    """One step along the reduction."""

    latency: _NotNegative
    address_a: _NotNegative
    address_b: _NotNegative
    address_throughput: _NotNegative
    missing_async_loads: _Positive
    interwave_latency: _Positive
    interwave_throughput: _Positive
    double_lds_latency: _Positive
    simds: _Count


class Matrix(strict_tables.StrictModel):
    """Matrix instructions."""

    overhead: _Positive
    small_tile: _Positive
    oblong_tile: _Positive


class Lds(strict_tables.StrictModel):
    """Local data share."""

    padding: _Positive


class Block(strict_tables.StrictModel):
    """Prologue and epilogue of a block."""

    fixed_latency: _NotNegative
    stage_latency: _NotNegative
    fixed_throughput: _NotNegative
    element_latency: _NotNegative
    element_throughput: _NotNegative
    narrow_store: _NotNegative
    without_cshuffle: _Positive


class Registers(strict_tables.StrictModel):
    """Vector registers."""

    base: _NotNegative
    per_load: _NotNegative
    wave32: _Positive
    wave32_budget: _Positive
    hinted_waves: _Positive
    spill_slope: _NotNegative
    refused_at: _Positive


class Occupancy(strict_tables.StrictModel):
    """Resident blocks."""

    max_waves: _Positive
    rounding: _NotNegative
    max_threads: _Count
    wavelet_load_waves: _Count


class Direction(strict_tables.StrictModel):
    """Factors of one direction."""

    address_a: _Positive
    address_b: _Positive
    epilogue: _Positive


class PipelineCosts(strict_tables.StrictModel):
    """Factors of one pipeline."""

    code: Annotated[int, Field(ge=0)]
    latency: _Positive
    address_latency: _Positive
    address_throughput: _Positive
    overlap: _Share
    epilogue: _Positive
    stages: _Count
    staging_sets: Annotated[int, Field(ge=0)]


class Schedule(strict_tables.StrictModel):
    """Blocks over compute units."""

    masked: _Share
    masked_rows: _Share
    masked_columns: _Share


class Memory(strict_tables.StrictModel):
    """Caches and main memory."""

    l2: _Positive
    llc: _Positive
    hbm: _Positive
    l2_tiles: _Positive
    llc_usable: _Positive
    least_hbm: _Share
    hbm_reread: _Share
    active_slope: _Positive
    least_active: _Positive


class Splitting(strict_tables.StrictModel):
    """Split-K, stream-K and two-stage kernels."""

    reduction_bandwidth: _Positive
    reduction_passes: _Positive
    streamk_reduction: _Positive
    second_launch: _NotNegative
    second_traffic: _NotNegative
    second_bandwidth: _Positive


class Noise(strict_tables.StrictModel):
    """Measurement noise."""

    run_relative: _NotNegative
    run_us: _NotNegative
    launch_relative: _NotNegative
    launch_us: _NotNegative
    outlier_rate: _Share
    outlier_relative: _NotNegative
    outlier_us: _NotNegative
    outlier_from_us: _Positive
    clock_drift: _NotNegative
    drift_period: _Positive
    warm_up: _NotNegative
    warm_up_pairs: _Positive
    session_pairs: _Positive
    tick_us: _Positive
    least_us: _Positive


class Coefficients(strict_tables.StrictModel):
    """Every coefficient of the simulated device."""

    model: Annotated[str, Field(min_length=1)]
    iteration: Iteration
    matrix: Matrix
    lds: Lds
    block: Block
    registers: Registers
    occupancy: Occupancy
    directions: dict[str, Direction]
    specializations: dict[str, _Positive]
    explicit_gemm: _Positive
    pipelines: dict[str, PipelineCosts]
    aliases: dict[str, str]
    async_pipelines: list[str]
    schedule: Schedule
    memory: Memory
    splitting: Splitting
    split_image: _NotNegative
    noise: Noise

    @model_validator(mode="after")
    def _covers_the_vocabulary(self) -> Self:
        pipelines = {*self.pipelines, *self.aliases}
        for what, names, vocabulary in (
            ("directions", self.directions, VARIANTS),
            ("specializations", self.specializations, SPECIALIZATIONS),
            ("pipelines and aliases", pipelines, PIPELINES),
        ):
            if set(names) != set(vocabulary):
                raise ValueError(f"{what}: {', '.join(sorted(set(names) ^ set(vocabulary)))} is missing or unknown")
        for name, target in self.aliases.items():
            if name in self.pipelines or target not in self.pipelines:
                raise ValueError(f"aliases.{name} is {target!r}; name a pipeline of the table, once")
        if not set(self.async_pipelines) <= set(self.pipelines):
            raise ValueError(f"async_pipelines is {self.async_pipelines}; name pipelines of the table")
        return self

    def physical(self, pipeline: str) -> str:
        """Return the pipeline whose behaviour ``pipeline`` has."""
        return self.aliases.get(pipeline, pipeline)


def load_coefficients(path: str | Path) -> Coefficients:
    """Read the coefficients of ``path``; ``UserError`` on a mistake in it."""
    return strict_tables.read_yaml_table(path, Coefficients)
