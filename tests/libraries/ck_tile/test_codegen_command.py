"""``tileseer codegen``: what it writes and prints, and that no option is passed over."""

import csv
import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from repository import CONFIG, ROOT, SPECS

from tileseer.cli.main import main
from tileseer.facts.inputs import ConfigsSettings
from tileseer.libraries import emitted_folder as library
from tileseer.libraries.ck_tile import flags, kernel
from tileseer.libraries.ck_tile.names import parse_kernel
from tileseer.libraries.ck_tile.upstream.named import Enumerator
from tileseer.libraries.rule_sets import RuleSet
from tileseer.problems.operation import Operation

TINY = "--arch gfx950 --rule-set tiny"
ONE = "--variant forward --ndim 2 --dtype bf16"


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
def codegen(capsys, tmp_path, monkeypatch):
    """Return a function that runs the command in an empty folder; it gives exit status, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(options):
        try:
            status = main(["codegen", *options.split()])
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()

    return run


def rows(printed):
    return list(csv.DictReader(printed.splitlines(), delimiter="\t"))


def contents(folder="."):
    return {path.relative_to(folder).as_posix(): path for path in Path(folder).rglob("*") if path.is_file()}


def times(folder="."):
    return {name: path.stat().st_mtime_ns for name, path in contents(folder).items()}


def kernels_of(folder):
    return {path.stem for path in Path(folder, "gfx950").glob("*.hpp") if not path.stem.startswith("include_all")}


def test_a_rule_set_is_emitted_without_its_flagged_kernels(codegen):
    listed = rows(codegen(f"{TINY} --list-configs")[1])
    status, out, _ = codegen(f"{TINY} --output none")
    assert status == 0 and "left out by a flag" in out
    manifest = Path("none/gfx950/MANIFEST").read_text().splitlines()
    assert manifest == sorted(set(contents("none/gfx950")) - {"MANIFEST"})
    codegen(f"{TINY} --output all --include-flagged all")
    codegen(f"{TINY} --output one --include-flagged async_layout")
    for folder, flags_of in (("none", ("",)), ("one", ("", "async_layout")), ("all", {row["flags"] for row in listed})):
        assert kernels_of(folder) == {row["built_as"] for row in listed if row["flags"] in flags_of}
    assert kernels_of("none") < kernels_of("all")
    for path in Path("none/gfx950").glob("register_*_chunk_*.cpp"):
        assert path.read_text().count("add(") <= 25


def test_the_same_request_touches_nothing_and_another_leaves_no_stale_file(codegen):
    codegen(f"{TINY} --output .")
    before = times()
    status, out, _ = codegen(f"{TINY} --output .")
    assert status == 0 and ", 0 written, 0 removed" in out and times() == before
    Path("gfx950/mine.txt").write_text("not from here")
    stale = next(Path("gfx950").glob("grouped_conv_bwd_weight*.hpp"))
    _, out, _ = codegen(f"{TINY} --output . --variant forward")
    assert not stale.exists() and Path("gfx950/mine.txt").exists()
    assert not re.search(r" 0 removed", out)
    texts = [path.read_text() for name, path in contents().items() if "include_all" in name]
    assert not any(stale.stem in text for text in texts)


def test_only_changed_files_are_written_again(codegen):
    shutil.copytree(ROOT / "workflow/templates", "workflow/templates")
    request = f"{TINY} {ONE} --output out"
    assert codegen(request)[0] == 0
    before = times("out")
    damaged = next(Path("out/gfx950").glob("grouped_conv_fwd*.hpp"))
    good = damaged.read_text()
    damaged.write_text("// edited\n")
    assert codegen(request)[0] == 0 and damaged.read_text() == good
    after = times("out")
    assert {name for name in before if before[name] != after[name]} == {f"gfx950/{damaged.name}"}
    unit = Path("workflow/templates/kernel.cpp.j2")
    unit.write_text(unit.read_text() + "// new\n")
    assert codegen(request)[0] == 0
    assert all(path.read_text().endswith("// new\n") for path in Path("out/gfx950").glob("grouped*.cpp"))


def test_archs_lie_side_by_side(codegen):
    assert codegen("--rule-set tiny --arch gfx942 gfx950 --output .")[0] == 0
    files = contents()
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

        def collection_files(self, kernels, arch):
            return {"all.hpp": " ".join(kernels)}

        def kernel_files(self, one, arch):
            if one == self.fails:
                raise Interrupted
            return {f"{one}.hpp": one}

    with pytest.raises(Interrupted):
        library.emit_folder(tmp_path, ["a", "b", "c"], "gfx950", Emitter("c"))
    done = library.emit_folder(tmp_path, ["b", "d"], "gfx950", Emitter(None))
    assert set(contents(tmp_path)) == {"all.hpp", "b.hpp", "d.hpp", "MANIFEST"}
    assert done == {"files": 3, "files_written": 2, "files_removed": 2}


def test_a_manifest_never_removes_what_lies_outside(codegen):
    folder = Path("out/gfx950")
    folder.mkdir(parents=True)
    Path("precious").write_text("")
    (folder / "MANIFEST").write_text("../../precious\n")
    status, _, err = codegen(f"{TINY} --output out")
    assert status == 2 and "MANIFEST" in err and Path("precious").exists()


def test_an_older_api_level_leaves_out_what_it_lacks(codegen):
    status, out, _ = codegen(f"{TINY} --output . --ck-api 2025.11")
    assert status == 0 and not re.search(r" 0 not in the API level", out)
    assert not any("depthwise" in name or "streamk" in name for name in contents())


def test_lists_say_what_a_level_lacks_and_what_runs_only_with_one_slice(codegen):
    listed = rows(codegen(f"{TINY} --list-configs --ck-api 2025.11")[1])
    names = codegen(f"{TINY} --list-names --ck-api 2025.11")[1].splitlines()
    assert names == sorted({row["kernel"] for row in listed if not row["lacks"]}) and len(names) < len(listed) / 2
    assert all("CK Tile 2025.11: " in row["lacks"] for row in listed if "_streamk_" in row["kernel"])
    assert {row["one_slice"] for row in listed} > {""}


def test_list_configs_says_what_the_filter_says_and_why(codegen):
    listed = rows(codegen(f"{TINY} --list-configs")[1])
    assert len(listed) == 35 and {row["arch"] for row in listed} == {"gfx950"}
    refused = [row for row in listed if row["arch_filter"] != "pass"]
    assert len(refused) == 7 and all(row["arch_filter_reason"] for row in refused)
    assert {row["arch_filter_reason"] for row in listed if row["arch_filter"] == "pass"} == {""}
    flagged = [row for row in listed if row["flags"]]
    assert flagged and all(
        row["flag_reasons"] and set(row["flags"].split(",")) <= set(flags.FLAG_NAMES) for row in flagged
    )


def test_json_has_every_field_of_a_kernel(codegen):
    for row in json.loads(codegen(f"{TINY} --list-configs --json")[1])["configs"]:
        config = parse_kernel(row["kernel"])
        assert {**row["fields"]} == asdict(config)
        assert row["family"] == ("implicit_gemm" if isinstance(config, kernel.KernelConfig) else "depthwise")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (f"{TINY} --list-names --include-flagged all", "--include-flagged is for --output"),
        (f"{TINY} --output x --ck-api 2024", "no API level '2024'"),
        (f"{TINY} --list-names --ck-root /ck", "--ck-root is for the rule sets profiler and tests"),
        (f"{TINY} --output x --include-flagged slow", "unknown flag 'slow'"),
        (f"{TINY} --output x --list-names", "not allowed with"),
        ("--output x", "required: --arch"),
        ("--arch gfx950 gfx950 --list-names", "given twice"),
        ("--arch gfx1201 --output x", "no kernel to emit for gfx1201"),
        ("--arch gfx000 --list-names", "unknown arch 'gfx000'"),
        ("--arch mi300x --list-names", "'mi300x'; do you mean gfx942?"),
        ("--arch gfx950 --rule-set tidy --list-names", "unknown rule set 'tidy'; is it tiny?"),
        ("--arch sm_90 --rule-set tiny --list-names", "name a file, such as config/rule_sets/cutlass"),
        ("--arch sm_90 --output x --ck-api 2025.11", "the library of sm_90 has no levels"),
        ("--arch gfx950 --rule-set tests --list-names", "--ck-root DIR"),
    ],
)
def test_mistakes_are_told_and_fail(codegen, options, told):
    status, _, err = codegen(options)
    assert status == 2 and told in err
    assert not contents()


def test_a_rule_set_of_a_file_gives_the_kernels_that_the_workflow_has(codegen):
    for arch, name in (("gfx950", "sweep.yaml"), ("sm_90", "cutlass.yaml")):
        rules = str(CONFIG / "rule_sets" / name)
        rule_set = RuleSet(rules, CONFIG / "rule_sets", None, SPECS)
        pool = rule_set.enumerate_kernels(arch, Operation("forward", "bf16"), ConfigsSettings(include_flagged=["all"]))
        built = [kernel.name for kernel in pool.kernels]
        words = f"--arch {arch} --rule-set {rules} --variant forward --dtype bf16 --list-names"
        assert codegen(words)[1].split() == built
    # Every direction and data type that the file has.
    names = codegen(f"--arch sm_90 --rule-set {rules} --list-names")[1].split()
    assert {name.split("_")[3] for name in names} >= {"bf16", "fp16"} and set(built) < set(names)


def test_cutlass_kernels_are_emitted_without_its_headers(codegen, monkeypatch):
    monkeypatch.setenv("CUTLASS_PATH", "/nowhere")
    few = f"--arch sm_90 --rule-set {CONFIG}/rule_sets/smoke_cutlass.yaml --variant forward --dtype bf16"
    status, out, _ = codegen(f"{few} --output .")
    assert status == 0 and "0 not in the API level" in out
    found = contents("sm_90")
    listed = codegen(f"{few} --list-names")[1].split()
    assert listed and set(found) == {
        *(f"{name}{suffix}" for name in listed for suffix in (".cu", ".cuh")), "library.cu", "MANIFEST"
    }  # fmt: skip
    assert all(name in found["library.cu"].read_text() for name in listed)
    assert ", 0 written, 0 removed" in codegen(f"{few} --output .")[1]
