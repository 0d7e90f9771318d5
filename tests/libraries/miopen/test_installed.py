"""``tileseer run --arch installed_miopen``, on a folder that imitates an installation: what is read and written."""

import os

import pytest
import yaml
from help_examples import words
from installed_miopen import find_db_lines, write_installation
from repository import CONFIG

from tileseer.cli import main, run_words
from tileseer.core import documents
from tileseer.core.errors import UserError
from tileseer.data.dataset_files import FILE
from tileseer.data.provenance import Recording
from tileseer.facts.hardware import read_hardware
from tileseer.libraries.library import WAYS
from tileseer.libraries.miopen.installed import import_installed
from tileseer.libraries.miopen.solvers import release_of

TABLE = CONFIG / "hardware.yaml"


@pytest.fixture(scope="module")
def lines():
    return list(find_db_lines(["forward_fp16"], 50))


@pytest.fixture
def machine(tmp_path, monkeypatch, lines):
    """ROCm with three GPUs' databases, and a home with some of a user."""
    text = "".join(lines)
    root = write_installation(
        tmp_path / "rocm",
        {
            "gfx950100.HIP.fdb.txt.bz2": text, "gfx110136.HIP.fdb.txt": text, "gfx110136.HIP.fdb.txt.bz2": "damaged",
            "gfx120020.HIP.fdb.txt.bz2": text, "gfx942130.db.txt.bz2": "the database of parameters",
            "gfx906_60.OpenCL.fdb.txt.bz2": text, "gfx942e4.HIP.fdb.txt": "".join(lines[:3]),
        },
    )  # fmt: skip
    (root / "bin").mkdir()
    (root / "bin/MIOpenDriver").touch()
    home = tmp_path / "home"
    home.mkdir()
    key = lines[0].partition("=")[0]
    for version in ("3_5_2_abc", "3_4_0_abc"):
        (home / f"gfx950100.HIP.{version}.ufdb.txt").write_text(f"{key}=fft:0.00625,0,miopenConvolutionFwdAlgoFFT\n")
    (home / "gfx950100.HIP.3_5_2_abc.fusion.ufdb.txt").write_text("another database\n")
    monkeypatch.setenv("ROCM_PATH", str(root))
    monkeypatch.setenv("MIOPEN_USER_DB_PATH", str(home))
    monkeypatch.chdir(tmp_path)
    return root


def test_each_gpu_of_an_installation_is_a_recording_of_its_version(machine, tmp_path):
    made = import_installed(tmp_path / "made", "", TABLE)
    assert made.archs == ("gfx1101_54cu_miopen", "gfx1200_32cu_miopen", "gfx950_256cu_miopen")
    said = "\n".join(made.said)
    assert "gfx942_228cu_miopen: left out, as no operation has 100 problems: forward_fp16 3" in said
    assert "3_4_0_abc.ufdb.txt: is of another version than 3.5.2, which is installed: left out" in said
    config = yaml.safe_load(made.config.read_text())
    assert list(config["replays"]) == list(config["benchmark"]["products"]) == list(made.archs)
    for arch, units in zip(made.archs, (54, 32, 256), strict=True):
        own = documents.read_document(tmp_path / "made" / arch / FILE, Recording)
        assert own.taken.library == "MIOpen 3.5.2" and own.operations == ["forward_fp16"]
        product = read_hardware(config["hardware"], own.device)
        assert (product.compute_units, product.arch) == (units, arch.partition("_")[0])
    assert config["benchmark"]["products"]["gfx950_256cu_miopen"] == "gfx950_mi355x"
    assert "forward_fp16" in os.listdir(tmp_path / "made/gfx950_256cu_miopen")
    ways = (tmp_path / "made/gfx950_256cu_miopen" / WAYS).read_text().splitlines()
    assert f"--driver {machine}/bin/MIOpenDriver" in ways[0] and "gfx950100.HIP.3_5_2_abc.ufdb.txt" in ways[1]
    assert f"--system {machine}/share/miopen/db/gfx950100.HIP.fdb.txt.bz2" in ways[1]


def test_a_second_call_reads_nothing_and_another_version_everything(machine, tmp_path):
    first = import_installed(tmp_path / "made", "gfx950", TABLE)
    file = tmp_path / "made/gfx950_256cu_miopen" / FILE
    before = file.stat().st_ino
    again = import_installed(tmp_path / "made", "gfx950100", TABLE)
    assert again.archs == first.archs and again.said[-1].endswith("has the times of these files already")
    assert file.stat().st_ino == before
    write_installation(machine, {}, "3.6.0")
    import_installed(tmp_path / "made", "gfx950", TABLE)
    assert documents.read_document(file, Recording).taken.library == "MIOpen 3.6.0"


def test_without_the_header_the_newest_of_the_users_files_has_the_version(machine, tmp_path):
    (machine / "include/miopen/version.h").unlink()
    made = import_installed(tmp_path / "made", "", TABLE)
    own = documents.read_document(tmp_path / "made" / made.archs[-1] / FILE, Recording)
    assert own.taken.library == "MIOpen 3.5.2"


def test_what_is_not_there_is_said(machine, tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"--gpu 'gfx1030': .* they have gfx1101 \(54 compute units\), gfx1200"):
        import_installed(tmp_path / "made", "gfx1030", TABLE)
    with pytest.raises(UserError, match="no GPU has 100 problems of one operation"):
        import_installed(tmp_path / "made", "gfx942", TABLE)
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("MIOPEN_USER_DB_PATH", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="set ROCM_PATH to the folder of ROCm"):
        import_installed(tmp_path / "made", "", TABLE)


def test_the_run_is_of_the_installed_gpus_and_their_configuration(machine, tmp_path, monkeypatch, capsys):
    called = []
    monkeypatch.setattr(os, "execve", lambda *call: called.append(call))
    (tmp_path / "Snakefile").touch()
    (tmp_path / "mine.yaml").write_text("arch: gfx950\n")
    example = words("tileseer run --arch installed_miopen")
    for more in (["--configfile=mine.yaml", "-n"], ["-n", "--configfile", "mine.yaml"]):
        main.main([*example[:-1], "gfx950", *more])
        command = called.pop()[1]
        assert tuple(command[:3]) == run_words.SNAKEMAKE
        place = command.index("--configfile")
        assert command[place + 1 : place + 3] == ["results/installed/miopen/config.yaml", "mine.yaml"]
        assert "results/models/gfx950_256cu_miopen" in command
    capsys.readouterr()
    assert main.main(["run", "--gpu", "gfx950"]) == 2
    assert "--gpu: is for --arch installed_miopen" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("3_2_0_36bb7fd4a", (3, 2, 0)), ("3_5_1", (3, 5, 1)), ("MIOpen 3.3.0, merged as #3343", (3, 3, 0)),
     ("MIOpen 3.3", (3, 3)), ("MIOpen, commit 2d1fd997a6fc", ()), ("MIOpen (version not known)", ())],
)  # fmt: skip
def test_versions_are_read_where_they_are_known(text, numbers):
    assert release_of(text) == numbers
