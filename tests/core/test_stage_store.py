"""What a stage once made is put back only for the same code, settings, inputs and journals."""

import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

from tileseer.core.atomic import write_text
from tileseer.core.cache import Cache, key
from tileseer.core.code_digest import modules_of, state_of_files
from tileseer.core.script import RUN, content_digest
from tileseer.core.stage_file import name_of_text, remove_unused, stage_file_text
from tileseer.core.stage_store import StageStore, digest

MACHINE = {"lock": {}}


def cache_of(folder):
    return {"folder": str(folder / "cache"), "max_gib": 1}


SCRIPT = '''
from tileseer.core.script import Input, Journal, Output, Resource, Settings, stage_script


@stage_script()
def main(
    source: list[Input], copied: Output, folder: Output, settings: Settings, chunk: int | None = None,
    journal: Journal | None = None, threads: Resource = 1,
) -> str:
    """Copy.

    source: what is copied
    """
    from pathlib import Path

    from tileseer.core.atomic import write_text

    text = "".join(path.read_text() for path in source) + str(settings.get("word", ""))
    if journal:
        with journal.open("a") as stream:
            stream.write("line\\n")
    if Path("edit").exists():
        edited = Path(Path("edit").read_text())
        edited.write_text(edited.read_text().replace("x = 1", "x = 2") + "more = 1" if edited.exists() else "new")
    write_text(copied, text)
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
    monkeypatch.setenv(RUN, json.dumps({"machine": MACHINE | {"cache": cache_of(tmp_path)}, "code": {}}))
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


def test_outputs_come_back_as_copies(script, tmp_path):
    assert script() == "copy gfx950: made with 1 threads"
    for path in (tmp_path / "out").rglob("*"):
        if path.is_file():
            path.unlink()
    assert script("--threads", "2") == RESTORED
    assert (tmp_path / "out/b").read_text() == (tmp_path / "out/c/deep/file").read_text() == "content"
    assert (tmp_path / "out/b").stat().st_nlink == 1
    assert stat.S_IMODE((tmp_path / "out/b").stat().st_mode) & 0o400


@pytest.mark.parametrize("change", ["input", "settings", "option"])
def test_another_input_setting_or_option_computes(script, tmp_path, change):
    script()
    if change == "input":
        (tmp_path / "a").write_text("other")
    words = {"settings": ["--settings", '{"word": "more"}'], "option": ["--chunk", "1"]}.get(change, [])
    assert script(*words).endswith(": made with 1 threads")
    assert script(*words).endswith("unchanged, restored")


def test_a_journal_may_grow_but_not_lose_or_change_what_outputs_were_made_of(script, tmp_path):
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
        monkeypatch.setenv(RUN, json.dumps({"machine": machine, "code": {}}))
        assert script() == script() == "copy gfx950: made with 1 threads"


@pytest.fixture
def planned(script, tmp_path, monkeypatch):
    """The stage's file and the environment of a run that was planned with the code as it is."""
    path = tmp_path / "copy.py"
    text = stage_file_text(path, {"word": "x"}, {"reads": {"table": digest(tmp_path / "table")}})
    (tmp_path / "stage.json").write_text(text)
    states = {"copy": state_of_files([path, *modules_of(path).values()])}
    monkeypatch.setenv(RUN, json.dumps({"machine": MACHINE | {"cache": cache_of(tmp_path)}, "code": states}))


def test_code_that_was_changed_since_the_plan_is_refused_but_for_comments(script, planned, tmp_path):
    assert script("--settings", "stage.json") == "copy gfx950: made with 1 threads"
    path = tmp_path / "copy.py"
    path.write_text(SCRIPT + "# a comment\n")
    assert script("--settings", "stage.json") == RESTORED
    path.write_text(SCRIPT.replace("line", "lime"))
    with pytest.raises(AssertionError, match=r"copy.py: changed since the run was planned; run again"):
        script("--settings", "stage.json")


def test_a_table_that_was_changed_since_the_plan_is_refused(script, planned, tmp_path):
    (tmp_path / "table").write_text("new")
    with pytest.raises(AssertionError, match="table: changed since the run was planned; run again"):
        script("--settings", "stage.json")


@pytest.mark.parametrize("edited", ["copy.py", "a", "table"])
def test_what_changes_while_a_stage_computes_is_refused_and_nothing_is_kept(script, planned, tmp_path, edited):
    path = tmp_path / edited
    before = path.read_text() if path.exists() else None
    (tmp_path / "edit").write_text(edited)
    with pytest.raises(AssertionError, match=f"{edited}: changed since the run was planned; run again"):
        script("--settings", "stage.json")
    path.unlink() if before is None else path.write_text(before)
    (tmp_path / "edit").unlink()
    assert script("--settings", "stage.json") == "copy gfx950: made with 1 threads"


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"[]",
        b"{}",
        b'{"outputs": 1, "journals": []}',
        b'{"outputs": {"copied": [["", 1, true]]}, "journals": []}',
        b"[" * 5000,
        b'{"outputs": {}, "journals": []}',
        *(
            json.dumps({
                "outputs": {"copied": [["", "0" * 64, False]], "folder": [[name, "0" * 64, False] for name in names]},
                "journals": [],
            }).encode()
            for names in (
                ["../x"], ["/tmp/x"], ["a/../../x"], [".hidden"], ["a//b"], ["a\0b"], ["\ud800"], ["x" * 300], ["a/"],
                ["a\nb"], ["/a"], ["a", "a"], ["a", "a/b"], ["", "a"], [],
            )
        ),
    ],
)  # fmt: skip
def test_a_malformed_entry_is_none(tmp_path, entry):
    cache = Cache(tmp_path / "cache", 10**6)
    content = b"content"
    cache.put("0" * 64, entry.replace(b"0" * 64, hashlib.sha256(content).hexdigest().encode()))
    cache.put(key("output of a stage", hashlib.sha256(content).hexdigest()), content)
    store = StageStore(cache)
    assert not store.restore("0" * 64, {"folder": tmp_path / "out/folder", "copied": tmp_path / "out/copied"}, [])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("size", ["1e999", "NaN", "1e308", str(2**70), "-1", "true", '"7"', "[]"])
def test_an_entry_with_an_impossible_size_of_a_journal_is_none(tmp_path, size):
    cache = Cache(tmp_path / "cache", 10**6)
    (tmp_path / "journal").write_bytes(b"content")
    made = hashlib.sha256(b"content").hexdigest()
    cache.put("0" * 64, b'{"outputs": {}, "journals": [[%s, "%s"]]}' % (size.encode(), made.encode()))
    assert not StageStore(cache).restore("0" * 64, {}, [tmp_path / "journal"])


def test_what_does_not_fit_into_the_cache_is_not_kept(tmp_path):
    store = StageStore(Cache(tmp_path / "cache", 100))
    write_text(tmp_path / "big", "x" * 1000)
    store.keep("0" * 64, {"big": tmp_path / "big"}, [])
    assert not store.restore("0" * 64, {"big": tmp_path / "big"}, [])


def test_the_file_of_a_stage_has_its_digest_in_its_name_and_says_code_and_packages():
    script = Path(__file__).parents[2] / "workflow/scripts/model.py"
    text = stage_file_text(script, {"model": {}}, {"toolchain": "none"})
    content = json.loads(text)
    assert "lightgbm" in content["packages"] and "tileseer.learn" in content["modules"]
    assert content["facts"] == {"toolchain": "none"}
    other = stage_file_text(script, {"model": {"seed": 2}}, {"toolchain": "none"})
    assert name_of_text(script, text) != name_of_text(script, other)


def test_files_of_stages_that_no_configuration_uses_go(tmp_path):
    for name in ("model.1.json", "model.2.json"):
        (tmp_path / name).write_text("")
    remove_unused(tmp_path, {"model.2.json"})
    assert [path.name for path in tmp_path.iterdir()] == ["model.2.json"]


def test_yaml_counts_by_its_values_and_no_yaml_crashes(tmp_path):
    path = tmp_path / "table.yaml"
    texts = ("a: 1\n", "# A comment.\na:   1\n", "a: 2\n", "[" * 10_000, "a: &x [1]\nb: *x\n", "a: [\n")
    digests = [(path.write_text(text), content_digest(path))[1] for text in texts]
    assert digests[0] == digests[1] and len(set(digests)) == len(texts) - 1
