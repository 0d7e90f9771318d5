"""The emitted kernels compile for real: hipcc against a Composable Kernel tree of November 2025."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

import pytest
from repository import ROOT
from test_hip_modules import FORWARD

from tileseer.build import instructions, reading
from tileseer.build import source_trees as trees
from tileseer.build.source_trees import HeaderTree
from tileseer.libraries.ck_tile.kernel import parse

PLAIN = "grouped_conv_fwd_bf16_nhwgc_2d_compv3_cshuffle_intrawave_64x64x64_2x2x1_16x16x32"
KERNELS = {
    # The first one is also compiled as a library: test_emulated.py compares their machine code.
    "gfx950": [FORWARD, "grouped_conv_fwd_bf16_nhwgc_2d_compv6_cshuffle_intrawave_64x64x64_2x2x1_16x16x32"],
    "gfx942": [PLAIN],
    "gfx90a": ["grouped_conv_bwd_data_fp16_nhwgc_2d_compv3_cshuffle_intrawave_64x64x64_2x2x1_16x16x32"],
}


def test_what_adds_slices_has_to_compile_as_well(hip, monkeypatch):
    """The compiler cannot select gfx950's addition to memory for the bf16 that the tree has before ROCm 7."""
    name = "grouped_conv_bwd_weight_bf16_nhwgc_2d_compv3_cshuffle_intrawave_64x64x64_2x2x1_16x16x32"

    def result():
        return hip.toolchain("gfx950").compile(hip.units([name]))[0]

    assert result().status == "ok"
    monkeypatch.setenv("CCC_OVERRIDE_OPTIONS", "+-UCK_TILE_USE_LLVM_BUILTIN_BF16 +-DCK_TILE_USE_LLVM_BUILTIN_BF16=0")
    older = result()
    assert older.status == "compile_error" and "BUFFER_ATOMIC_FADD" in older.reason


@pytest.mark.parametrize("arch", KERNELS)
def test_kernels_compile_and_their_code_object_is_read(hip, arch):
    for result in hip.toolchain(arch).compile(hip.units(KERNELS[arch], arch)):
        assert (result.status, result.reason) == ("ok", ""), result.log
        r = result.resources
        assert r.source == "code_object"
        assert r.threads == 256
        # 64 x 64 x 64 in 16 bits: one buffer each of A and B; MFMA and barriers are there.
        assert r.lds_bytes >= 2 * 64 * 64 * 2
        assert 0 < r.vgprs + r.agprs <= 512
        assert r.occupancy >= 1
        kinds = instructions.count_kinds(r.instructions)
        assert min(kinds[kind] for kind in ("mfma", "valu", "barriers", "buffer_loads", "lds_reads")) > 0


def test_wrappers_and_registration_compile_against_the_real_tree(hip, tmp_path):
    """The tree has no dispatcher: its part is played by the stand-in's folder of that name, all else is real."""
    kernels = [
        parse(text)
        for text in (
            PLAIN,
            PLAIN.replace("_compv3_", "_compv6_"),
            PLAIN.replace("_fwd_", "_bwd_data_"),
            PLAIN.replace("_fwd_", "_bwd_weight_") + "_vec4_8_4_2stage",
        )
    ]
    collections = hip.emitter.collection_files(kernels, "gfx950")
    for path, text in (hip.emitter.files(kernels, "gfx950") | collections).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    stand_in = tmp_path / "stand_in"
    shutil.copytree(ROOT / "tests/toolchain/ck_stand_in/ck_tile/dispatcher", stand_in / "ck_tile/dispatcher")
    assert not (hip.tree.include / "ck_tile/dispatcher").exists()
    (tmp_path / "all.cpp").write_text("".join(f'#include "{path}"\n' for path in collections))
    arguments = ["-fsyntax-only", "--cuda-host-only", "--offload-arch=gfx950", "-D__HIP_PLATFORM_AMD__"]
    arguments += ["-Wno-undefined-func-template", "-Wno-float-equal"]
    arguments += ["-I", hip.tree.include, "-isystem", stand_in, "-I", ".", "all.cpp"]
    run = hip.compiler.run(arguments, tmp_path, 600, 3072)
    assert run.outcome == "ok", run.log
    assert any(path.startswith("register_") for path in collections)


DIRECTIONS = {
    variant: PLAIN.replace("_fwd_", f"_{variant}_") + suffix
    for variant, suffix in (("fwd", ""), ("bwd_data", ""), ("bwd_weight", "_vec4_8_4_2stage"))
}
WEIGHT_GRADIENT = "ck_tile/ops/grouped_convolution/kernel/grouped_convolution_backward_weight_kernel.hpp"
FORGET = (trees.content_digest, reading._digest)


def test_only_kernels_that_read_a_header_are_compiled_again_after_an_edit_and_none_after_a_comment(
    hip, tmp_path, monkeypatch
):
    """Keys alone, of the real tree and preprocessor: the tree is linked file by file, and one header is edited."""
    tree = hip.tree
    include = tmp_path / "include"
    shutil.copytree(tree.include / "ck_tile", include / "ck_tile", copy_function=os.symlink)
    header = include / WEIGHT_GRADIENT
    original = header.read_text()
    header.unlink()
    # What counts where the preprocessor fails: it must not.
    monkeypatch.delattr(HeaderTree, "digest")

    def keys(text):
        header.write_text(text)
        for known in FORGET:
            known.cache_clear()
        toolchain = replace(hip, tree=HeaderTree(include, tree.folder)).toolchain("gfx950")
        chunk = hip.units(DIRECTIONS.values())
        return dict(zip(DIRECTIONS, map(toolchain.key, chunk), strict=True))

    before = keys(original)
    assert keys(original.replace("\n", "  // a comment\n", 1) + "\n/* and one\nmore */\n") == before
    after = keys(original + "\nnamespace ck_tile { struct AnotherToken; }\n")
    assert {variant for variant in DIRECTIONS if after[variant] != before[variant]} == {"bwd_weight"}
