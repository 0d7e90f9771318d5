"""A recording as a device: it gives the times that a GPU had, and nothing for a pair that was not recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from tileseer.data.dataset_files import check_recording, read_tables
from tileseer.facts.hardware import Hardware
from tileseer.libraries.candidates import label
from tileseer.measure.device import STATUSES, Times
from tileseer.problems.operation import Operation

OK, UNSUPPORTED = STATUSES.index("ok"), STATUSES.index("unsupported")


class RecordedDevice:
    """One operation of a recording; every time is that of its file."""

    kind = "recorded"
    largest_batch = 2**31 - 1
    differs = False

    def __init__(self, folder: Path, operation: Operation, hardware: Hardware) -> None:
        """``UserError`` if the recording is damaged, or of another operation or product."""
        self.name = hardware.name
        check_recording(folder, str(operation), hardware)
        tables = read_tables(folder / str(operation))
        self._identity = str(tables.recording.measurement_id)
        # A plan that did not run there is no choice of the library.
        rows = tables.pairs[tables.pairs["status"] == "ok"]
        kernels = tables.kernels["kernel"].to_numpy()[rows["kernel"]]
        rows = rows.assign(
            kernel=kernels,
            candidate=list(map(label, kernels, rows["split_k"])),
            problem_key=tables.problems["problem_key"].to_numpy()[rows["problem"]],
            latency_ms=rows["median_us"] / 1000.0,
        )
        self._rows = rows.set_index(["problem_key", "candidate"])
        self._offers = rows[rows["rank"].notna()].sort_values("rank").groupby("problem_key")["kernel"]

    def identity(self) -> str:
        """Return the recording's digest."""
        return self._identity

    def has_times(self, key: str) -> bool:
        """Return whether any candidate of a problem has a time."""
        return key in self._rows.index.get_level_values("problem_key")

    def offered(self, key: str) -> list[str]:
        """Return the kernels that the library offered for a problem, in its order; none where it was not recorded."""
        return self._offers.get_group(key).astype(str).tolist() if key in self._offers.groups else []

    def measure(
        self, problems: pd.DataFrame, candidates: pd.DataFrame, problem_index: np.ndarray, candidate_index: np.ndarray
    ) -> Times:
        """Return the recorded times of n pairs as ``Device.measure`` says; ``unsupported`` without one."""
        keys = problems["problem_key"].to_numpy()[problem_index]
        names = candidates["candidate"].to_numpy()[candidate_index]
        rows = self._rows.reindex(pd.MultiIndex.from_arrays([keys, names]))
        ok = rows["latency_ms"].notna().to_numpy()
        return Times(
            status=np.where(ok, OK, UNSUPPORTED).astype(np.uint8),
            latency_ms=rows["latency_ms"].to_numpy(np.float64),
            latency_cv=rows["cv"].to_numpy(np.float64),
            samples=rows["samples"].fillna(0).to_numpy(np.int32),
            sentinel=np.full(len(rows), np.nan),
        )
