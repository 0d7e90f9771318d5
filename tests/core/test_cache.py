"""The shared cache: whole or absent, bounded, and safe for many writers who may die at any moment."""

import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileseer.core import cache as caches
from tileseer.core.cache import Cache

BIG = 10**9


def content_of(number, size=3000):
    return random.Random(number).randbytes(size)


def entries(folder):
    return sorted(path for path in (folder / "entries").rglob("*") if path.is_file())


def held(folder):
    return sum(path.stat().st_size for path in entries(folder))


@given(st.lists(st.binary(max_size=9), max_size=4), st.lists(st.binary(max_size=9), max_size=4))
def test_other_parts_give_another_key(one, other):
    assert (caches.key(*one) == caches.key(*other)) == (one == other)


def test_what_is_kept_comes_back_and_the_rest_is_absent(tmp_path):
    cache = Cache(tmp_path / "cache", BIG)
    assert cache.get(caches.key("a")) is None
    for content in (b"", b"\n", content_of(1), b"tileseer-cache-1 \n"):
        assert cache.put(caches.key(content), content)
        assert Cache(tmp_path / "cache", BIG).get(caches.key(content)) == content
    assert cache.get(caches.key("a")) is None
    # The first of two contents stays.
    assert cache.put(caches.key(b""), b"other") and cache.get(caches.key(b"")) == b""


@given(position=st.integers(0), cut=st.booleans())
def test_a_damaged_entry_is_never_returned(tmp_path_factory, position, cut):
    folder = tmp_path_factory.mktemp("cache")
    cache = Cache(folder, BIG)
    cache.put(caches.key("a"), b"content")
    (path,) = entries(folder)
    whole = bytearray(path.read_bytes())
    # Under another name it is none either.
    moved = path.with_name(path.name[:-1] + ("0" if path.name[-1] != "0" else "1"))
    moved.write_bytes(whole)
    assert cache.get(moved.name) is None and entries(folder) == [path]
    position %= len(whole)
    if cut:
        del whole[position:]
    else:
        whole[position] ^= 1
    path.write_bytes(whole)
    assert cache.get(caches.key("a")) is None
    assert not entries(folder)


def test_what_was_used_longest_ago_goes_first(tmp_path):
    cache = Cache(tmp_path, 10 * 3200)
    keys = [caches.key(str(number)) for number in range(9)]
    for number, key in enumerate(keys):
        cache.put(key, content_of(number))
        os.utime(tmp_path / "entries" / key[:2] / key, (number, number))
    assert cache.get(keys[0]) == content_of(0)
    for number in (100, 101):
        cache.put(caches.key(str(number)), content_of(number))
    kept = [cache.get(key) is not None for key in keys]
    assert kept[0] and not kept[1] and kept[-1]
    assert held(tmp_path) <= 10 * 3200


def test_what_is_above_the_bound_is_not_kept(tmp_path):
    for max_bytes in (0, 100):
        cache = Cache(tmp_path / "cache", max_bytes)
        assert not cache.put(caches.key("a"), content_of(1))
        assert cache.get(caches.key("a")) is None


def test_what_a_killed_writer_left_goes_after_a_while(tmp_path):
    cache, key = Cache(tmp_path, BIG), caches.key("a")
    cache.put(key, b"content")
    fresh, old = (tmp_path / "entries" / key[:2] / f".{key}.{name}.tmp" for name in ("fresh", "old"))
    fresh.touch()
    old.touch()
    os.utime(old, (0, 0))
    # Above the bound, so that there has to be room.
    assert Cache(tmp_path, 300).put(caches.key("b"), bytes(100))
    assert fresh.exists() and not old.exists()


def churn(folder, seed):
    """Write and read at random for ever; end with status 3 if a wrong content comes back."""
    draw = random.Random(seed)
    cache = Cache(folder, 40 * 3200)
    while True:
        number = draw.randrange(80)
        if draw.random() < 0.5:
            cache.put(caches.key(str(number)), content_of(number))
        elif cache.get(caches.key(str(number))) not in (None, content_of(number)):
            os._exit(3)


def start(target, *arguments):
    process = multiprocessing.get_context("fork").Process(target=target, args=arguments)
    process.start()
    return process


def test_many_writers_that_are_killed_at_any_moment(tmp_path):
    draw = random.Random(1)
    workers = [start(churn, tmp_path, seed) for seed in range(4)]
    try:
        for kill in range(12):
            time.sleep(draw.uniform(0.005, 0.05))
            at = draw.randrange(len(workers))
            os.kill(workers[at].pid, signal.SIGKILL)
            workers[at].join()
            assert workers[at].exitcode == -signal.SIGKILL
            workers[at] = start(churn, tmp_path, 100 + kill)
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
    cache = Cache(tmp_path, 40 * 3200)
    whole = [path for path in entries(tmp_path) if not path.name.startswith(".")]
    assert all(cache.get(path.name) is not None for path in whole)
    assert sum(path.stat().st_size for path in whole) <= 1.2 * 40 * 3200 and len(whole) > 10


def test_what_is_kept_is_not_made_again(tmp_path, capfd):
    made = []
    for cache in (Cache(tmp_path / "cache", BIG), Cache(tmp_path / "cache", BIG), Cache(tmp_path, 0)):
        assert cache.made_once(caches.key("a"), lambda: made.append("") or b"made") == b"made"
    assert len(made) == 2, "without a cache it is made"
    (tmp_path / "file").touch()
    cache = Cache(tmp_path / "file", BIG)
    assert cache.made_once(caches.key("a"), lambda: b"made") == b"made" and cache.get(caches.key("a")) is None
    assert "going on without it" in capfd.readouterr().err


@pytest.mark.skipif(os.getuid() != 0, reason="only root can write as two users")
@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_two_users_share_a_folder_that_is_open_to_both(mode, capfd):
    # Not below pytest's own folder, which is closed to others.
    folder = Path(tempfile.mkdtemp(prefix="tileseer-test-"))
    try:
        folder.chmod(mode)
        use_as_several(folder, capfd)
    finally:
        shutil.rmtree(folder)


def use_as_several(folder, capfd):
    for user in (65534, 1234, 65534):
        child = os.fork()
        if not child:
            os.setuid(user)
            cache = Cache(folder, 40 * 3200)
            read = [cache.get(caches.key(str(number))) for number in range(4)]
            put = all(cache.put(caches.key(f"{user} {number}"), content_of(number)) for number in range(4))
            put = put and all(cache.put(caches.key(str(number)), content_of(number)) for number in range(4))
            os._exit(0 if put and read in ([None] * 4, [content_of(number) for number in range(4)]) else 1)
        assert os.waitpid(child, 0)[1] == 0, capfd.readouterr().err
    assert len({path.stat().st_uid for path in entries(folder)}) == 2
    assert held(folder) <= 40 * 3200


def test_the_default_folder_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert caches.default_folder() == tmp_path / "tileseer"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert caches.default_folder() == tmp_path / ".cache/tileseer"
