"""Bundles: same content, same bytes; a damaged archive is refused."""

import tarfile

from hypothesis import given
from hypothesis import strategies as st

from tileseer.core import bundle

FILES = {"b.hpp": "b\n", "wrappers/a.hpp": b"\x00\xff", "a.cpp": "ä"}
NAMES = st.lists(st.text("ab.-_ü", min_size=1, max_size=60).filter(lambda part: part not in (".", "..")), min_size=1)


def test_bytes_depend_on_content_alone_and_any_tar_reader_reads_them(tmp_path):
    bundle.write_bundle(tmp_path / "x.tar", FILES)
    bundle.write_bundle(tmp_path / "y.tar", dict(reversed(FILES.items())))
    assert (tmp_path / "x.tar").read_bytes() == (tmp_path / "y.tar").read_bytes()
    assert list(bundle.read_bundle(tmp_path / "x.tar")) == sorted(FILES)
    with tarfile.open(tmp_path / "x.tar") as archive:
        assert archive.extractfile("b.hpp").read() == b"b\n"
        for member in archive:
            assert (member.mtime, member.uid, member.gid, member.mode, member.uname) == (0, 0, 0, 0o644, "")


@given(st.dictionaries(NAMES.map("/".join), st.binary(max_size=700), max_size=4))
def test_round_trip(tmp_path_factory, files):
    path = tmp_path_factory.mktemp("bundle") / "x.tar"
    bundle.write_bundle(path, files)
    assert bundle.read_bundle(path) == files
