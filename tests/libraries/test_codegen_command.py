"""``tileseer codegen`` and ``tileseer explain``: what they write and print, and that no option is passed over."""

import csv
import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from tileseer.cli.main import main
from tileseer.facts.arch import ArchSpecs
from tileseer.facts.inputs import ConfigsSettings
from tileseer.libraries.ck_tile import flags, kernel
from tileseer.libraries.ck_tile.names import parse_kernel
from tileseer.libraries.ck_tile.upstream import emitted_folder as library
from tileseer.libraries.ck_tile.upstream.named import Enumerator
from tileseer.libraries.rule_sets import RuleSet
from tileseer.problems.operation import Operation

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "config"
COUNTS = Path(__file__).parents[1] / "data/reference_counts.csv"
TINY = ("--arch", "gfx950", "--rule-set", "tiny")
ONE = ("--variant", "forward", "--ndim", "2", "--datatype", "bf16")
BAD = "grouped_conv_bwd_weight_fp16_nhwgc_2d_mem_cshuffle_interwave_32x16x64_2x1x2_16x16x32_vec4_2_2"


@pytest.fixture(scope="module", autouse=True)
def cells_of_full():
    """Enumerate each cell of ``full`` once for all commands, which read the same tables."""
    kept, full = {}, Enumerator._full

    def from_kept(enumerator, name, cells):
        enumerator._cells = kept
        return full(enumerator, name, cells)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Enumerator, "_full", from_kept)
        yield


@pytest.fixture
def command(capsys):
    """Return a function that runs a command; it gives exit status, output and errors."""

    def run(name, *options):
        paths = ("--config", str(CONFIG))
        if name == "codegen":
            paths += ("--templates", str(ROOT / "workflow/templates"))
        try:
            status = main([name, *(("config",) if name == "explain" else ()), *options, *paths])
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()

    return run


def contents(folder):
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}


def times(folder):
    return {name: path.stat().st_mtime_ns for name, path in contents(folder).items()}


def kernels_of(folder):
    return {path.stem for path in (folder / "gfx950").glob("*.hpp") if not path.stem.startswith("include_all")}


def test_a_rule_set_is_emitted_without_its_flagged_kernels(command, tmp_path):
    rows = json.loads(command("codegen", *TINY, "--list-configs", "--json")[1])["configs"]
    status, out, _ = command("codegen", *TINY, "--output", str(tmp_path / "none"))
    assert status == 0 and "left out by a flag" in out
    manifest = (tmp_path / "none/gfx950/MANIFEST").read_text().splitlines()
    assert manifest == sorted(set(contents(tmp_path / "none/gfx950")) - {"MANIFEST"})
    command("codegen", *TINY, "--output", str(tmp_path / "all"), "--include-flagged", "all")
    command("codegen", *TINY, "--output", str(tmp_path / "one"), "--include-flagged", "async_layout")
    for folder, flags_of in (("none", ("",)), ("one", ("", "async_layout")), ("all", {row["flags"] for row in rows})):
        assert kernels_of(tmp_path / folder) == {row["built_as"] for row in rows if row["flags"] in flags_of}
    assert kernels_of(tmp_path / "none") < kernels_of(tmp_path / "all")


def test_the_same_request_touches_nothing_and_another_leaves_no_stale_file(command, tmp_path):
    command("codegen", *TINY, "--output", str(tmp_path))
    before = times(tmp_path)
    status, out, _ = command("codegen", *TINY, "--output", str(tmp_path))
    assert status == 0 and ", 0 written, 0 removed" in out and times(tmp_path) == before
    (tmp_path / "gfx950/mine.txt").write_text("not from here")
    stale = next((tmp_path / "gfx950").glob("grouped_conv_bwd_weight*.hpp"))
    _, out, _ = command("codegen", *TINY, "--output", str(tmp_path), "--variant", "forward")
    assert not stale.exists() and (tmp_path / "gfx950/mine.txt").exists()
    assert not re.search(r" 0 removed", out)
    texts = [path.read_text() for name, path in contents(tmp_path).items() if "include_all" in name]
    assert not any(stale.stem in text for text in texts)


def test_only_changed_files_are_written_again(command, tmp_path):
    shutil.copytree(ROOT / "workflow/templates", tmp_path / "templates")
    request = ["codegen", *TINY, *ONE, "--output", str(tmp_path / "out"), "--config", str(CONFIG)]
    request += ["--templates", str(tmp_path / "templates")]
    assert main(request) == 0
    before = times(tmp_path / "out")
    damaged = next((tmp_path / "out/gfx950").glob("grouped_conv_fwd*.hpp"))
    good = damaged.read_text()
    damaged.write_text("// edited\n")
    assert main(request) == 0 and damaged.read_text() == good
    after = times(tmp_path / "out")
    assert {name for name in before if before[name] != after[name]} == {f"gfx950/{damaged.name}"}
    unit = tmp_path / "templates/kernel.cpp.j2"
    unit.write_text(unit.read_text() + "// new\n")
    assert main(request) == 0
    assert all(path.read_text().endswith("// new\n") for path in (tmp_path / "out/gfx950").glob("grouped*.cpp"))


def test_archs_lie_side_by_side(command, tmp_path):
    request = ("--rule-set", "tiny", "--arch", "gfx942", "gfx950", "--output", str(tmp_path))
    assert command("codegen", *request)[0] == 0
    files = contents(tmp_path)
    assert {name.split("/")[0] for name in files} == {"gfx942", "gfx950"}
    header = next(name for name in files if name.startswith("gfx942/grouped") and name.endswith(".hpp"))
    assert '"gfx942"' in files[header].read_text()


def test_an_interrupted_emission_leaves_nothing_that_the_next_does_not_know(tmp_path):
    class Interrupted(Exception):
        pass

    class Emitter:
        paths = staticmethod(lambda kernel: [f"{kernel}.hpp"])

        def __init__(self, fails):
            self.fails = fails

        def collection_files(self, kernels, arch, chunk_size):
            return {"all.hpp": " ".join(kernels)}

        def kernel_files(self, one, arch):
            if one == self.fails:
                raise Interrupted
            return {f"{one}.hpp": one}

    with pytest.raises(Interrupted):
        library.emit_folder(tmp_path, ["a", "b", "c"], "gfx950", Emitter("c"), 25)
    done = library.emit_folder(tmp_path, ["b", "d"], "gfx950", Emitter(None), 25)
    assert set(contents(tmp_path)) == {"all.hpp", "b.hpp", "d.hpp", "MANIFEST"}
    assert done == {"files": 3, "files_written": 2, "files_removed": 2}


def test_a_manifest_never_removes_what_lies_outside(command, tmp_path):
    folder = tmp_path / "out/gfx950"
    folder.mkdir(parents=True)
    (tmp_path / "precious").write_text("")
    (folder / "MANIFEST").write_text("../../precious\n")
    status, _, err = command("codegen", *TINY, "--output", str(tmp_path / "out"))
    assert status == 2 and "MANIFEST" in err and (tmp_path / "precious").exists()


def test_registration_chunks_have_the_size_that_is_asked_for(command, tmp_path):
    request = (*TINY, "--variant", "bwd_weight", "--output", str(tmp_path), "--chunk-size", "4")
    assert command("codegen", *request)[0] == 0
    sizes = [path.read_text().count("add(") for path in sorted((tmp_path / "gfx950").glob("register_bwd*_chunk_*.cpp"))]
    assert sum(sizes) == len(kernels_of(tmp_path)) and max(sizes) == 4


def test_an_older_api_level_leaves_out_what_it_lacks(command, tmp_path):
    status, out, _ = command("codegen", *TINY, "--output", str(tmp_path), "--ck-api", "2025.11")
    assert status == 0 and not re.search(r" 0 not in the API level", out)
    assert not any("depthwise" in name or "streamk" in name for name in contents(tmp_path))


def test_lists_say_what_a_level_lacks_and_what_runs_only_with_one_slice(command):
    _, out, _ = command("codegen", *TINY, "--list-configs", "--ck-api", "2025.11")
    rows = list(csv.DictReader(out.splitlines(), delimiter="\t"))
    names = command("codegen", *TINY, "--list-names", "--ck-api", "2025.11")[1].splitlines()
    assert names == sorted({row["kernel"] for row in rows if not row["lacks"]}) and len(names) < len(rows) / 2
    assert all("CK Tile 2025.11: " in row["lacks"] for row in rows if "_streamk_" in row["kernel"])
    two_stage = ("--variant", "bwd_weight", "--dtype", "bf16", "--ndim", "2", "--ck-api", "2025.11", "--list-configs")
    for vector, reason in (("8", "vectors of 4 at most"), ("4", "")):
        fields = ("--two-stage", "true", "--vec-c", vector)
        (row,) = json.loads(command("codegen", "--arch", "gfx950", *two_stage, *fields, "--json")[1])["configs"]
        assert row["one_slice"].endswith(reason) and bool(row["one_slice"]) == bool(reason)


def test_list_configs_says_what_the_filter_says_and_why(command):
    _, out, _ = command("codegen", *TINY, "--list-configs")
    rows = list(csv.DictReader(out.splitlines(), delimiter="\t"))
    assert len(rows) == 35 and {row["arch"] for row in rows} == {"gfx950"}
    refused = [row for row in rows if row["arch_filter"] != "pass"]
    assert len(refused) == 7 and all(row["arch_filter_reason"] for row in refused)
    assert {row["arch_filter_reason"] for row in rows if row["arch_filter"] == "pass"} == {""}
    flagged = [row for row in rows if row["flags"]]
    assert flagged and all(
        row["flag_reasons"] and set(row["flags"].split(",")) <= set(flags.FLAG_NAMES) for row in flagged
    )
    _, filtered, _ = command("codegen", *TINY, "--list-configs", "--arch-filtered")
    assert len(filtered.splitlines()) == 1 + 28


def test_json_has_every_field_of_a_kernel(command):
    for row in json.loads(command("codegen", *TINY, "--list-configs", "--json")[1])["configs"]:
        config = parse_kernel(row["kernel"])
        assert {**row["fields"]} == asdict(config)
        assert row["family"] == ("implicit_gemm" if isinstance(config, kernel.KernelConfig) else "depthwise")


def test_counts_are_compared_with_the_reference_and_a_different_one_fails(command, tmp_path):
    request = ("--counts", "--arch", "gfx950", "--rule-set", "default", "--compare")
    status, out, err = command("codegen", *request, str(COUNTS))
    rows = list(csv.DictReader(out.splitlines(), delimiter="\t"))
    assert status == 0 and len(rows) == 31 and {row["reference"] for row in rows} == {"same"}
    assert "31 cells compared, 0 differ" in err
    total = next(row for row in rows if row["scope"] == "all")
    assert (total["enumerated_configs"], total["arch_filtered_configs"]) == ("456", "334")
    table = tmp_path / "counts.csv"
    table.write_text(
        COUNTS.read_text().replace("gfx950,default,all,all,2+3,all,456", "gfx950,default,all,all,2+3,all,457")
    )
    status, out, err = command("codegen", *request, str(table))
    assert status == 1 and "enumerated_configs 456 != 457" in out and "1 differ" in err
    for text, message in [
        ("arch,rule_set\ngfx950,default\n", "counts.csv: this is no table of counts: there is no column scope"),
        (table.read_text().replace(",457,", ",many,"), r"line \d+: a count is no number: .*'many'"),
    ]:
        table.write_text(text)
        status, _, err = command("codegen", *request, str(table))
        assert status == 2 and re.search(message, err)


def one_kernel(command, *options):
    status, out, err = command("codegen", "--arch", "gfx950", *ONE, *options, "--list-names")
    assert status == 0, err
    return kernel.parse(out.strip())


def test_a_single_kernel_is_the_one_of_its_options(command):
    config = one_kernel(
        command, "--tile-m", "64", "--tile-n", "64", "--tile-k", "32", "--warp-m", "1", "--warp-n", "1",
        "--wave-k", "2",
        "--warp-tile-m", "16", "--warp-tile-n", "32", "--warp-tile-k", "8", "--vector-a", "2", "--vector-b", "4",
        "--vector-c", "1", "--pipeline", "mem", "--scheduler", "interwave", "--epilogue", "default",
        "--num-wave-groups", "2", "--num-groups-to-merge", "4", "--pad-m", "false", "--pad-n", "--pad-k", "False",
        "--double-smem-buffer", "true", "--split-image", "--explicit-gemm", "false", "--specialization",
        "filter1x1_pad0",
    )  # fmt: skip
    assert config.name == (
        "grouped_conv_fwd_bf16_nhwgc_2d_mem_default_interwave_64x64x32_1x1x2_16x32x8_vec2_4_1_wg2_gm4_dsb"
        "_filter1x1_pad0_large_tensor_pad010"
    )


def test_defaults_of_a_single_kernel(command):
    config = one_kernel(command, "--pipeline", "compv3")
    assert config.name.endswith("compv3_cshuffle_intrawave_128x128x64_2x2x1_32x32x16")
    assert one_kernel(command, "--tile-k", "32").double_smem_buffer
    assert not one_kernel(command, "--pipeline", "compv4", "--double-smem-buffer", "false").double_smem_buffer


def test_stream_k_options(command):
    request = ("--arch", "gfx950", "--variant", "bwd_weight", "--ndim", "3", "--datatype", "fp16", "--list-names")
    options = ("--pipeline", "mem", "--streamk-enabled", "true", "--streamk-reduction-strategy", "LINEAR")
    _, out, _ = command("codegen", *request, *options, "--streamk-persistent")
    assert out.strip().endswith("_streamk_linear_persistent") and "_ndhwgc_3d_" in out


def test_a_single_kernel_that_is_not_legal_is_refused_with_the_rule(command, tmp_path):
    request = ("--arch", "gfx950", *ONE, "--output", str(tmp_path), "--tile-m", "48")
    status, _, err = command("codegen", *request)
    assert status == 2 and "tile_divides: the tile 48x128x64" in err and not contents(tmp_path)
    assert command("codegen", *request, "--include-flagged", "tile_divides", "lds_fits")[0] == 0
    assert any("48x128x64" in name for name in contents(tmp_path))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((*TINY, "--list-names", "--compare", "x.csv"), "--compare is for --counts"),
        (("--counts", "--ck-api", "2025.11"), "leave out --ck-api"),
        ((*TINY, "--output", "x", "--ck-api", "2024"), "no API level '2024'"),
        ((*TINY, "--list-names", "--tile-m", "64"), "--rule-set and --tile-m exclude each other"),
        (("--counts", "--arch", "gfx950", "--pad-k", "true"), "leave out all options of single kernels"),
        ((*TINY, "--list-names", "--ck-root", "/ck"), "--ck-root is for the rule sets profiler and tests"),
        ((*TINY, "--output", "x", "--chunk-size", "0"), "--chunk-size: '0' is no whole number from 1"),
        ((*TINY, "--output", "x", "--include-flagged", "slow"), "unknown flag 'slow'"),
        ((*TINY, "--output", "x", "--list-names"), "not allowed with"),
        (("--output", "x"), "which arch?"),
        (("--arch", "gfx950", "gfx950", "--list-names"), "given twice"),
        (("--arch", "gfx1201", "--output", "x"), "no kernel to emit for gfx1201"),
        (("--arch", "gfx950", "--rule-set", "tidy", "--list-names"), "unknown rule set 'tidy'; use one of default,"),
        (("--arch", "sm_90", "--rule-set", "tiny", "--list-names"), "name a file, such as config/rule_sets/cutlass"),
        (("--arch", "sm_90", "--output", "x", "--ck-api", "2025.11"), "are for AMD's archs, not for sm_90"),
        (("--arch", "gfx950", "--rule-set", "tests", "--list-names"), "--ck-root DIR"),
        (("--arch", "gfx950", "--pad-m", "maybe", "--list-names"), "'maybe' is neither true nor false"),
        (("--arch", "gfx950", "--tile-k", "0", "--list-names"), "tile_k is 0"),
        (("--arch", "gfx950", "--pipeline", "compv9", "--list-names"), "'compv9'"),
        (("--arch", "gfx950", "--streamk-persistent", "--list-names"), "add --streamk-enabled true"),
        (("--arch", "gfx000", "--pipeline", "mem", "--list-names"), "unknown arch 'gfx000'"),
        (("--arch", "gfx950", "--variant", "forward_depthwise", "--tile-m", "8", "--list-names"), "use a rule set"),
        (("--arch", "gfx950", *ONE, "--two-stage", "--output", "x"), "two_stage and stream-K exist for bwd_weight"),
    ],
)
def test_mistakes_are_told_and_fail(command, monkeypatch, tmp_path, options, told):
    monkeypatch.chdir(tmp_path)
    status, _, err = command("codegen", *options)
    assert status == 2 and told in err
    assert not contents(tmp_path)


def test_a_rule_set_of_a_file_gives_the_kernels_that_the_workflow_has(command):
    for arch, name in (("gfx950", "sweep.yaml"), ("sm_90", "cutlass.yaml")):
        rules = str(CONFIG / "rule_sets" / name)
        rule_set = RuleSet(rules, CONFIG / "rule_sets", None, ArchSpecs.load(CONFIG / "arch_specs.json"))
        pool = rule_set.enumerate_kernels(arch, Operation("forward", "bf16"), ConfigsSettings(include_flagged=["all"]))
        built = [kernel.name for kernel in pool.kernels]
        words = ("--arch", arch, "--rule-set", rules, "--variant", "forward", "--dtype", "bf16")
        assert command("codegen", *words, "--list-names")[1].split() == built
    # Every direction and data type that the file has.
    names = command("codegen", "--arch", "sm_90", "--rule-set", rules, "--list-names")[1].split()
    assert {name.split("_")[3] for name in names} >= {"bf16", "fp16"} and set(built) < set(names)


def test_cutlass_kernels_are_emitted_without_its_headers(command, tmp_path, monkeypatch):
    monkeypatch.setenv("CUTLASS_PATH", "/nowhere")
    rules = ("--rule-set", str(CONFIG / "rule_sets/smoke_cutlass.yaml"))
    narrow = ("--arch", "sm_90", *rules, "--variant", "forward", "--dtype", "bf16", "--output", str(tmp_path))
    status, out, _ = command("codegen", *narrow)
    assert status == 0 and "0 not in the API level" in out
    found = contents(tmp_path / "sm_90")
    listed = command("codegen", *narrow[:-2], "--list-names")[1].split()
    assert listed and set(found) == {
        *(f"{name}{suffix}" for name in listed for suffix in (".cu", ".cuh")), "library.cu", "MANIFEST"
    }  # fmt: skip
    assert all(name in found["library.cu"].read_text() for name in listed)
    assert ", 0 written, 0 removed" in command("codegen", *narrow)[1]


def test_explain_shows_every_rule_with_its_reason(command):
    status, out, _ = command("explain", BAD, "--arch", "gfx950")
    assert status == 1 and out.splitlines()[0] == f"{BAD} on gfx950"
    assert re.search(r"FAIL  half_zero_output \(B7\) +interwave mem with 2x1 waves", out)
    assert re.search(r"FAIL  is_built +flags half_zero_output", out)
    assert "pass  flat_waves_listed" in out and "pass  lds_fits" in out


def test_explain_takes_fields_and_gives_json(command):
    words = "--variant bwd_data --datatype bf16 --pipeline compv6 --arch gfx950 --json"
    status, out, _ = command("explain", *words.split())
    content = json.loads(out)
    assert status == 1 and kernel.parse(content["kernel"]).pipeline == "compv6"
    verdicts = {(row["group"], row["rule"]): row for row in content["rules"]}
    refusal = verdicts["reference filter", "backward_pipeline"]
    assert not refusal["passed"] and "compv6" in refusal["reason"]
    assert verdicts["build", "is_built"]["passed"]


def test_explain_knows_depthwise_kernels(command):
    name = "grouped_conv_fwd_depthwise_fp16_ngchw_2d_16x16_f4_s2x2_p1x1_nb2_sub1x4_vec8_8"
    out = command("explain", name, "--arch", "gfx950")[1]
    assert re.search(r"FAIL  depthwise_fault +the filter is 4 wide", out)
    status, out, _ = command("explain", name.replace("f4", "f3"), "--arch", "gfx950")
    assert status == 0 and "pass  is_built" in out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--arch", "gfx950"), "which kernel?"),
        ((BAD, "--arch", "gfx950", "--tile-m", "3"), "not both"),
        ((BAD + "x", "--arch", "gfx950"), "^"),
        ((BAD, "--arch", "gfx000"), "unknown arch"),
        ((BAD, "--arch", "mi300x"), "unknown arch 'mi300x'; do you mean gfx942?; known:"),
    ],
)
def test_explain_tells_mistakes(command, options, told):
    status, _, err = command("explain", *options)
    assert status == 2 and told in err
