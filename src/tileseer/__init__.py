"""Tileseer learns which CK Tile grouped-convolution kernel to run on a GPU."""

import sys

# On a full disk Python leaves byte code that is cut short, and fails on it ever after. Without it a job starts as fast.
sys.dont_write_bytecode = True
