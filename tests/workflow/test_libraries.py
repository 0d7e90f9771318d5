"""CUTLASS kernels go through the stages up to the libraries; a compiler that writes small files stands for nvcc."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from fake_machine import install_compiler
from small_workflow import ROOT

LIBRARIES = ("results/libraries/sm_90/driver.so", "results/libraries/sm_90/forward_fp16/0.so")


@pytest.fixture
def cuda(fresh, tmp_path):
    """A workflow for sm_90 that is not replayed, with six kernels."""
    folder = tmp_path / "machine"
    folder.mkdir()
    compiler = folder / "nvcc"
    install_compiler(compiler, "fake_nvcc")
    tree = folder / "cutlass/include/cutlass/cutlass.h"
    tree.parent.mkdir(parents=True)
    tree.write_text("")
    rules = yaml.safe_load((ROOT / "config/rule_sets/cutlass.yaml").read_text())
    rules["variants"]["forward"]["options"] = [
        {"ndims": [2], "tiles": ["narrow"], "iterators": ["optimized"], "swizzles": [1, 4]}
    ]
    (fresh.folder / "config/rule_sets/few.yaml").write_text(yaml.safe_dump(rules))
    overlay = yaml.safe_load((ROOT / "config/cuda.yaml").read_text())
    overlay["configs"] |= {"rule_set": "config/rule_sets/few.yaml", "chunks": 1}
    overlay["compile"]["compiler"] = str(compiler)
    overlay |= {"operations": ["forward_fp16"], "cutlass": {"root": str(folder / "cutlass")}}
    fresh.configure(**overlay, cache={"folder": str(folder / "cache")})
    return fresh, folder


def test_kernels_of_an_nvidia_arch_are_built_into_a_library(cuda):
    workflow, folder = cuda
    run = workflow.make(*LIBRARIES)
    assert set(run.jobs) == {"arch_specs", "configs", "headers", "compile", "libraries", "driver"}
    built = pq.read_table(workflow.folder / "results/build/sm_90/forward_fp16/0.parquet").to_pylist()
    assert len(built) == 6
    assert {(row["build_status"], row["resources_from"], row["threads"]) for row in built} == {
        ("ok", "code_object", 128)
    }
    module = workflow.read(LIBRARIES[1])
    assert all(row["kernel"].encode() in module for row in built)

    # The launcher is part of the objects; the driver's sources are not.
    runs = Path(folder / "runs").read_text()
    (workflow.folder / "workflow/native/driver.hpp").open("a").write("// changed\n")
    assert set(workflow.make(*LIBRARIES).jobs) == {"compile", "libraries", "driver"}
    assert Path(folder / "runs").read_text() == runs
    (workflow.folder / "workflow/native/launcher.hpp").open("a").write("namespace changed {}\n")
    workflow.make(*LIBRARIES)
    assert Path(folder / "runs").read_text() != runs
