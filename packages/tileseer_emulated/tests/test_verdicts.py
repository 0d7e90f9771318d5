"""Verdicts of the emulated GPU without a compiler: which problems, what is kept, and the table of an arch."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from kernel_samples import a_kernel

from tileseer.build import aliases, build
from tileseer.build.base import CompileUnit
from tileseer.core import bundle, parquet
from tileseer.core.cache import Cache
from tileseer.facts import hardware
from tileseer.libraries.ck_tile.emit import CkTileEmitter
from tileseer.libraries.emitter import LACK
from tileseer.measure.harness.supervisor import Outcome, problem_numbers
from tileseer_emulated import kernels as emulated_kernels
from tileseer_emulated import verdicts as stage
from tileseer_emulated.tiny_problems import GRIDS, tiny_problems

FIRST, SECOND, THIRD = (a_kernel(pipeline=pipeline) for pipeline in ("basic_v1", "compv3", "mem"))
HARDWARE = Path(__file__).parents[3] / "config/hardware.yaml"
GPU = hardware.product_of_arch(HARDWARE, "gfx950")
OPCODES = {"v_add_f32": 60, "v_mfma_f32_16x16x32_bf16": 30, "s_barrier": 10}
SETTINGS = {"benchmark": {"timing": "quick"}}


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A compiler that is not asked, a cache, and what was executed: pairs of kernel and problem."""
    executed = []

    class Supervisor:
        def __init__(self, driver, limits):
            self.refused = machine.refused
            self.dry = iter(machine.launches)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def instances(self, request):
            return next(self.dry, [f"{request.kernel} instance"])

        def measure(self, request):
            executed.append((request.kernel, request.problem))
            if machine.stops_after == len(executed):
                raise KeyboardInterrupt
            if self.refused:
                self.refused -= 1
                return Outcome("unsupported", "no")
            return Outcome(machine.status.get(request.kernel, "ok"), "", {"opcodes": OPCODES} | machine.coverage)

    machine = SimpleNamespace(executed=executed, refused=0, stops_after=0, status={}, launches=(), coverage={})
    monkeypatch.setattr(emulated_kernels, "Supervisor", Supervisor)
    cache = Cache(tmp_path / "cache", 1 << 30)
    libraries = SimpleNamespace(cache=cache, object_key=lambda units: units[0].header.decode())
    monkeypatch.setattr(stage.registration, "builder_parts", lambda *words: ())
    monkeypatch.setattr(stage, "Libraries", lambda *parts: libraries)
    machine.libraries, machine.loaded = libraries, (tmp_path / "driver.so", tmp_path / "module.so")
    machine.loaded[0].write_bytes(b"driver")
    return machine


def verdict(machine, kernel=FIRST, code="code", **words):
    unit = CompileUnit(kernel, "gfx950", code.encode())
    return emulated_kernels.Emulation(machine.libraries, GPU, **words).verdict(unit, *machine.loaded)


def test_a_verdict_is_kept_for_code_and_problems(machine):
    whole = verdict(machine)
    assert (whole.status, whole.right, whole.wrong) == ("ok", len(machine.executed), 0)
    assert whole.instructions == 100 * whole.right > 1000
    # Of a compute unit with four SIMDs: four cycles of one of them, 16 384 FLOP at 4096 a cycle.
    assert whole.issue_cycles == (60 * 4 / 4 + 30 * 4) * whole.right
    assert verdict(machine) == whole and len(machine.executed) == whole.right
    verdict(machine, code="other")
    assert len(machine.executed) == 2 * whole.right
    machine.loaded[0].write_bytes(b"other driver")
    verdict(machine)
    assert len(machine.executed) == 3 * whole.right


NAMES = [
    f"kernelLb{loop}ELNS_10TailNumberE{tail}E_memory_operation_enumE{adds}"
    for loop, tail, adds in ((0, 1, 0), (1, 10, 0), (1, 9, 1))
]


def test_each_instance_is_executed_with_grids_of_both_forms(machine):
    pairs = emulated_kernels.supported_problems(FIRST, tiny_problems(FIRST))
    by_numbers = {problem_numbers(vars(one.problem), FIRST.variant, one.split_k): one.shows for one in pairs}
    refused = next(number for number, one in enumerate(pairs) if one.shows in GRIDS)
    # Two instances in turn, and one more with the last problem alone.
    launches = [[NAMES[number // 5 % 2]] for number in range(len(pairs))]
    machine.launches = [*launches[:refused], [], *launches[refused + 1 : -1], ["second stage", NAMES[0]]]
    instances = {NAMES[0]: (50, 100), NAMES[1]: (100, 100), "second stage": (10, 100), NAMES[2]: (0, 100)}
    machine.coverage = {"instances": instances, "not_executed": {NAMES[0]: "s_nop at 0x40", NAMES[1]: ""}}
    found = verdict(machine, few=True)
    assert found.right == 2 * len(GRIDS) + 1 == len(machine.executed)
    shown = Counter(by_numbers[problem] for _, problem in machine.executed)
    assert {words: shown[words] for words in GRIDS} == dict.fromkeys(GRIDS, 2)
    assert (found.instances, found.launched, found.executed) == (4, 3, 0.4)
    assert found.not_launched == "loop, tail empty, adds to the result"
    assert found.not_executed == "no loop, tail even, sets the result: s_nop at 0x40"
    assert emulated_kernels.coverage_text(found) == "3 of 4 instances, 40% of their instructions"
    machine.executed.clear()
    every = Counter(by_numbers[problem] for _ in [verdict(machine)] for _, problem in machine.executed)
    assert {words: every[words] for words in GRIDS} == dict.fromkeys(GRIDS, 2)
    # Whatever else a problem is for, once for each instance, and nothing for what it does not launch.
    assert set(every) > set(GRIDS) and max(every.values()) == 2


@pytest.mark.parametrize("status", ["hang", "run_timeout", "not_executable"])
def test_nothing_is_executed_after_what_does_not_end(machine, status):
    machine.status[FIRST.name] = status
    found = verdict(machine)
    assert (found.status, found.wrong, len(machine.executed)) == (status, 1, 1)


def tables(tmp_path, rows, known=()):
    """Files of a chunk: build table, bundle, aliases."""
    empty = dict.fromkeys(build.SCHEMA.names) | {"split_k": [1], "build_reason": ""}
    empty |= dict.fromkeys(("kernel_id", "error_digest", "code_hash", "resources_from"), "")
    content = [empty | {"kernel": kernel.name, "kernel_id": kernel.name} | words for kernel, words in rows]
    parquet.write_table(pa.Table.from_pylist(content, build.SCHEMA), tmp_path / "build.parquet")
    files = {CkTileEmitter.header_file(kernel): kernel.name for kernel, words in rows if words["build_status"] == "ok"}
    files |= {f"{kernel.name}{LACK}": "not here" for kernel, words in rows if words["build_status"] != "ok"}
    bundle.write_bundle(tmp_path / "headers.tar", files)
    listed = [{"kernel": one.name, "kernel_id": one.name, "alias_of": other.name, "alias_of_id": other.name}
              for one, other in known]  # fmt: skip
    parquet.write_table(pa.Table.from_pylist(listed, aliases.SCHEMA), tmp_path / "aliases.parquet")
    return tmp_path / "build.parquet", tmp_path / "headers.tar", tmp_path / "aliases.parquet"


def execute_chunk(machine, tmp_path, files):
    built, headers, known = files
    return stage.execute_chunk("gfx950", built, headers, *machine.loaded, known, HARDWARE, tmp_path, SETTINGS)


def test_an_interrupted_chunk_goes_on(machine, tmp_path):
    files = tables(tmp_path, [(kernel, {"build_status": "ok"}) for kernel in (FIRST, SECOND, THIRD)])
    machine.stops_after = 3
    with pytest.raises(KeyboardInterrupt):
        execute_chunk(machine, tmp_path, files)
    machine.stops_after = 0
    table = execute_chunk(machine, tmp_path, files)
    executed = [FIRST, FIRST, SECOND, SECOND, SECOND, THIRD, THIRD]
    assert [kernel for kernel, _ in machine.executed] == [kernel.name for kernel in executed]
    assert table["status"].to_pylist() == ["ok"] * 3


def test_the_table_of_an_arch_has_every_kernel_and_no_time(machine, tmp_path):
    lost, late, fat = (replace(FIRST, tile_m=size) for size in (128, 256, 512))
    rows = [
        (FIRST, {"build_status": "ok"}), (SECOND, {"build_status": "ok"}), (THIRD, {"build_status": "ok"}),
        (lost, {"build_status": "unsupported_by_ck", "build_reason": "no such header"}),
        (late, {"build_status": "compile_timeout", "build_reason": "too long"}),
        (fat, {"build_status": "pruned", "build_reason": "spills"}),
    ]  # fmt: skip
    machine.status[THIRD.name] = "race"
    files = tables(tmp_path, rows, known=[(SECOND, FIRST)])
    chunk = tmp_path / "chunk.parquet"
    parquet.write_table(execute_chunk(machine, tmp_path, files), chunk)
    assert SECOND.name not in {kernel for kernel, _ in machine.executed}
    found = stage.merge_chunks([chunk], [files[2]])
    assert [row["kernel"] for row in found] == sorted(kernel.name for kernel, _ in rows)
    told = {row["kernel"]: (row["status"], row["same_code_as"], row["right"], row["said"]) for row in found}
    assert told[FIRST.name] == ("ok", "", 2, "")
    assert told[SECOND.name] == ("ok", FIRST.name, 2, "")
    assert told[THIRD.name][0] == "race"
    assert told[lost.name] == ("unsupported", "", 0, "no such header")
    assert told[late.name] == ("compile_error", "", 0, "too long")
    assert told[fat.name] == ("skipped", "", 0, "spills")
    assert {row["status"] for row in found} <= set(emulated_kernels.VERDICT_STATUSES)
    lines = list(stage.table_lines(found))
    head = lines[0].split("\t")
    assert head == list(stage.VERDICT_COLUMNS) and not any(
        word in name for name in head for word in ("ms", "time", "latency")
    )
    assert all(line.split("\t")[-1] == "emulated" for line in lines[1:])
