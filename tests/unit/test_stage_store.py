"""What a stage once made is put back only for the same code, settings, inputs and journals."""

import json
import os
import stat

import pytest

from tileseer.core import events, seal, stage_files
from tileseer.core.atomic import write_text
from tileseer.core.cache import Cache
from tileseer.core.stage import MACHINE
from tileseer.core.stage_store import StageStore, digest

SCRIPT = '''
from __future__ import annotations

from tileseer.core.stage import Input, Output, Resource, Settings, State, stage


@stage()
def main(
    arch: str, source: list[Input], copied: Output, folder: Output, chunk: int | None = None,
    journal: State | None = None, threads: Resource = 1, settings: Settings = "{}",
) -> str:
    """Copy.

    source: what is copied
    """
    from tileseer.core.atomic import write_text

    text = "".join(path.read_text() for path in source) + str(settings.get("word", ""))
    if journal:
        with journal.open("a") as stream:
            stream.write("line\\n")
    write_text(copied, text, sealed=True)
    write_text(folder / "deep" / "file", text)
    return f"made with {threads} threads"


if __name__ == "__main__":
    raise SystemExit(main())
'''


@pytest.fixture
def script(tmp_path, monkeypatch, capsys):
    """Call a small stage as the workflow does; what it prints is returned."""
    import runpy

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(MACHINE, json.dumps({"cache": {"folder": str(tmp_path / "cache"), "max_gib": 1}}))
    monkeypatch.setenv(events.EVENTS, str(tmp_path / "events"))
    (tmp_path / "copy.py").write_text(SCRIPT)
    main = runpy.run_path("copy.py")["main"]
    (tmp_path / "a").write_text("content")

    def call(*words):
        status = main(["--arch", "gfx950", "--source", "a", "--copied", "out/b", "--folder", "out/c", *words])
        told = capsys.readouterr()
        assert status == 0, told.err
        return told.out.strip()

    return call


RESTORED = "copy gfx950: unchanged, restored"


def test_outputs_come_back_as_copies_with_their_seals(script, tmp_path):
    assert script() == "copy gfx950: made with 1 threads"
    for path in (tmp_path / "out").rglob("*"):
        if path.is_file():
            path.unlink()
    assert script("--threads", "2") == RESTORED
    assert (tmp_path / "out/b").read_text() == (tmp_path / "out/c/deep/file").read_text() == "content"
    seal.check(tmp_path / "out/b")
    assert seal.path_of(tmp_path / "out/b").exists()
    assert (tmp_path / "out/b").stat().st_nlink == 1
    assert stat.S_IMODE((tmp_path / "out/b").stat().st_mode) & 0o400
    told = [event["state"] for _, event in events.read(tmp_path / "events")]
    assert told == ["begin", "computed", "begin", "restored"]


@pytest.mark.parametrize("change", ["input", "settings", "option"])
def test_another_input_setting_or_option_computes(script, tmp_path, change):
    script()
    if change == "input":
        (tmp_path / "a").write_text("other")
    words = {"settings": ["--settings", '{"word": "more"}'], "option": ["--chunk", "1"]}.get(change, [])
    assert script(*words).endswith(": made with 1 threads")
    assert script(*words).endswith("unchanged, restored")


def test_a_journal_may_grow_but_not_lose_or_change_what_was_vouched_for(script, tmp_path):
    journal = tmp_path / "journal.csv"
    words = ("--journal", "journal.csv")
    script(*words)
    assert script(*words) == RESTORED
    journal.open("a").write("more\n")
    assert script(*words) == RESTORED
    journal.write_text("lime\nmore\n")
    assert script(*words) == "copy gfx950: made with 1 threads"
    journal.unlink()
    assert script(*words) == "copy gfx950: made with 1 threads"
    assert journal.read_text() == "line\n"


def test_a_damaged_entry_is_made_again(script, tmp_path):
    script()
    for path in (tmp_path / "cache/entries").rglob("*"):
        if path.is_file():
            os.truncate(path, path.stat().st_size - 1)
    assert script() == "copy gfx950: made with 1 threads"
    assert script() == RESTORED


def test_by_hand_and_without_a_cache_a_script_computes(script, monkeypatch):
    for machine in ({}, {"cache": {"folder": None, "max_gib": 0}}):
        monkeypatch.setenv(MACHINE, json.dumps(machine))
        assert script() == script() == "copy gfx950: made with 1 threads"


def test_settings_that_another_run_has_changed_since_are_refused(script, tmp_path, monkeypatch, capsys):
    (tmp_path / "stage.json").write_text('{"settings": {"word": "x"}}')
    monkeypatch.setenv("TILESEER_STAGE", digest(tmp_path / "stage.json"))
    script("--settings", "stage.json")
    (tmp_path / "stage.json").write_text('{"settings": {"word": "y"}}')
    with pytest.raises(AssertionError, match="another run in this folder has changed the settings"):
        script("--settings", "stage.json")


def test_what_does_not_fit_into_the_cache_is_not_kept(tmp_path):
    store = StageStore(Cache(tmp_path / "cache", 100))
    write_text(tmp_path / "big", "x" * 1000)
    store.keep("0" * 64, {"big": tmp_path / "big"}, [])
    assert not store.restore("0" * 64, {"big": tmp_path / "big"}, [])


def test_the_file_of_a_stage_is_written_only_if_it_changes_and_names_code_tables_and_packages(tmp_path):
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    script = stage_files.Path(root, "workflow/scripts/model.py")
    (tmp_path / "table").write_text("1")
    text = stage_files.content(script, {"model": {}}, [str(tmp_path / "table")], {"what": "else"})
    assert "lightgbm" in json.loads(text)["packages"] and json.loads(text)["known"] == {"what": "else"}
    path = tmp_path / "stages/model.json"
    first = stage_files.write(path, text)
    os.utime(path, (0, 0))
    assert stage_files.write(path, text) == first == digest(path)
    assert path.stat().st_mtime == 0
    assert stage_files.write(path, text + " ", may_write=False) != first
    assert path.read_text() == text


def test_a_command_line_names_inputs_outputs_wildcards_and_more():
    wildcards = {"arch": "gfx950", "operation": "forward_bf16"}
    options = [("in_put", ["a b", "c"]), ("none", []), ("path", "x/{arch}.csv"), ("by", lambda w: w["operation"])]
    line = stage_files.command_line("s.py", [*wildcards.items(), *options], wildcards)
    assert line == (
        "s.py --arch gfx950 --operation forward_bf16 --in-put 'a b' c --path x/gfx950.csv --by forward_bf16"
    )
