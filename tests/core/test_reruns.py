"""A job compares what it is made from with what its run found."""

import os
import sys
from contextlib import ExitStack

import pytest

from tileseer.core import atomic, code_digest, reruns
from tileseer.core.errors import UserError

STAGE = "arch_specs"


@pytest.fixture
def jobs():
    """Jobs that end with the test."""
    return ExitStack()


@pytest.fixture
def sources(tmp_path, monkeypatch, jobs):
    """Two modules that are the code of a stage."""
    files = [tmp_path / "first.py", tmp_path / "second.py"]
    for path in files:
        path.write_text("X = 1\n")
    monkeypatch.setattr(code_digest, "files_of_stage", lambda stage: files)
    monkeypatch.setattr(
        code_digest, "code_of_stage", lambda stage: code_digest._digest(map(code_digest._syntax_of_file, files))
    )
    monkeypatch.setattr(code_digest, "forget", code_digest._parsed.cache_clear)
    # Set before it is removed: so what the runs of a test put there goes with it.
    monkeypatch.setenv(reruns.VARIABLE, "")
    monkeypatch.delenv(reruns.VARIABLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with jobs:
        yield files
    code_digest._parsed.cache_clear()
    for name in ("first", "second"):
        sys.modules.pop(name, None)


def refused():
    """Return why a file may not appear, "" where it may."""
    try:
        atomic.write_text("output", "made")
    except UserError as error:
        assert not os.path.exists("output")
        return str(error)
    return ""


def begin(jobs, inputs=()):
    run = reruns.Run()
    code, _ = run.code(STAGE), run.tables(map(str, inputs))
    return lambda: jobs.enter_context(reruns.checked_job(STAGE, code, inputs))


def test_a_job_of_what_its_run_found_makes_its_output(sources, jobs):
    begin(jobs)()
    assert refused() == ""


@pytest.mark.parametrize(("text", "reason"), [("X = 2\n", reruns.SOURCES_CHANGED), ("X = 1  # a comment\n", "")])
def test_code_is_compared_at_the_begin_and_before_the_rename(sources, jobs, text, reason):
    job = begin(jobs)
    job()
    sources[1].write_text(text)
    assert refused() == reason
    if reason:
        with pytest.raises(UserError, match=reason):
            job()
    else:
        job()


def test_a_job_without_what_its_run_found_compares_the_digest_of_its_command(sources, jobs, monkeypatch):
    run = reruns.Run().code(STAGE)
    monkeypatch.delenv(reruns.VARIABLE)
    jobs.enter_context(reruns.checked_job(STAGE, run, []))
    with pytest.raises(UserError, match="the sources changed"):
        jobs.enter_context(reruns.checked_job(STAGE, "another", []))


def test_a_module_that_was_edited_is_not_loaded_though_it_is_taken_back_later(sources, jobs):
    begin(jobs)()
    import first  # noqa: F401

    sources[1].write_text("X = 2\n")
    with pytest.raises(UserError, match="the sources changed"):
        import second  # noqa: F401


@pytest.mark.parametrize("name", ["table.yaml", "table.parquet"])
def test_an_input_that_is_replaced_while_the_job_reads_it_is_refused(sources, jobs, tmp_path, name):
    table = tmp_path / name
    table.write_text("a: 1")
    begin(jobs, [table])()
    state = table.stat()
    table.with_suffix(".new").write_text("a: 2")
    os.replace(table.with_suffix(".new"), table)
    os.utime(table, ns=(state.st_atime_ns, state.st_mtime_ns - 1))
    assert refused() == f"{table}: changed while this job read it; run it again"


def test_a_table_is_compared_with_what_the_run_found_by_what_it_says(sources, jobs, tmp_path):
    table = tmp_path / "table.yaml"
    table.write_text("a: 1")
    job = begin(jobs, [table])
    table.write_text("a: 1  # one")
    job()
    table.write_text("a: 2")
    with pytest.raises(UserError, match=r"table\.yaml: changed since this run began"):
        job()


def test_a_run_on_another_node_has_what_the_first_one_found(sources, jobs):
    run = reruns.Run()
    code = run.code(STAGE)
    sources[0].write_text("X = 2\n")
    code_digest._parsed.cache_clear()
    again = reruns.Run()
    assert again.is_job and not run.is_job and again.code(STAGE) == code


@pytest.mark.parametrize(("name", "first", "same", "other"), [
    ("a.yaml", "a: 1\nb: [x]", "# comment\na:   1\nb:\n- x\n", "a: 1.5\nb: [x]"),
    ("a.json", '{"a": 1}', '{\n "a": 1}\n', '{"a": 2}'),
    ("a.csv", "a,b\n1,2\n", "a, b\r\n\r\n1,2", "a,b\n1,3\n"),
    ("a.j2", "{# x #}", "{# x #}", "{# y #}"),
    ("broken.yaml", "a: [", "a: [", "a: [["),
])  # fmt: skip
def test_tables_count_by_what_they_say_and_other_files_by_their_bytes(tmp_path, name, first, same, other):
    def content(text):
        (tmp_path / name).write_bytes(text.encode())
        return reruns.content_of(tmp_path / name)

    assert content(first) == content(same) != content(other)


def test_one_run_at_a_time_holds_results_whatever_link_leads_to_them(sources, jobs, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "results")
    first, second, third = reruns.Run(), reruns.Run(), reruns.Run()
    for run, name in ((first, "results"), (second, "link"), (third, "link")):
        run.plan(tmp_path / name)
    first.hold()
    with pytest.raises(UserError, match=rf"{tmp_path}/results: another run makes these results: process {os.getpid()}"):
        second.hold()
    code = first.code(STAGE)
    jobs.enter_context(reruns.checked_job(STAGE, code, []))
    (tmp_path / "results/.lock").write_text("process 1 of another run")
    assert "another run makes these results by now" in refused()
    with pytest.raises(UserError, match="another run makes these results by now"):
        jobs.enter_context(reruns.checked_job(STAGE, code, []))


def test_a_lock_of_snakemake_without_a_run_is_told_with_what_removes_it(sources, jobs, tmp_path):
    (tmp_path / ".snakemake/locks").mkdir(parents=True)
    assert reruns.Run().plan(tmp_path / "results") == ""
    os.environ.pop(reruns.VARIABLE)
    (tmp_path / ".snakemake/locks/0.input.lock").write_text("a\n")
    run = reruns.Run()
    assert "snakemake --unlock" in run.plan(tmp_path / "results")
    run.hold()
    os.environ.pop(reruns.VARIABLE)
    assert reruns.Run().plan(tmp_path / "results") == ""


def test_a_plan_that_another_run_has_overtaken_is_refused(sources, jobs, tmp_path):
    late = reruns.Run()
    late.plan(tmp_path / "results")
    (tmp_path / "results").mkdir()
    (tmp_path / "results/.lock").write_text("process 1 of user 0")
    with pytest.raises(UserError, match="another run changed these results just now"):
        late.hold()


def test_a_run_in_another_folder_inherits_nothing(sources, jobs, tmp_path, monkeypatch):
    reruns.Run().plan(tmp_path / "results")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert not reruns.Run().is_job


def test_what_a_run_is_planned_beside_keeps_its_record(sources, jobs, tmp_path):
    run = reruns.Run()
    run.plan(tmp_path / "results")
    run.hold()
    record = reruns.RECORD.read_text()
    os.environ.pop(reruns.VARIABLE)
    reruns.Run().plan(tmp_path / "results")
    assert reruns.RECORD.read_text() == record


def test_results_on_a_disk_that_is_not_there_are_told_before_jobs_are_planned(tmp_path):
    (tmp_path / "results").symlink_to("/nowhere/results")
    with pytest.raises(UserError, match="links to /nowhere/results, where no folder is; make that folder, or remove"):
        reruns.refuse_held(tmp_path / "results")
