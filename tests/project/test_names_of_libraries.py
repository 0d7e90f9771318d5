"""A library owns its name: another one needs no file of ours."""

import re
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src/tileseer"
OWNERS = ("libraries", "torch", "facts")
"""The libraries, the switch for cuDNN's plans in PyTorch, and the tables of products and settings."""


def test_no_room_names_a_library():
    names = re.compile(b"cudnn|miopen|cutlass|ck_tile", re.IGNORECASE)
    files = [path for path in SOURCES.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    others = [path for path in files if path.relative_to(SOURCES).parts[0] not in OWNERS]
    assert len(others) > 100
    assert not [str(path) for path in others if names.search(path.read_bytes())]
