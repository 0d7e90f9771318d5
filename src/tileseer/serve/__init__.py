"""What ships: picks in Python and C++, kernel sets, the published folder, selection and comparison."""

from tileseer import __getattr__ as __getattr__
