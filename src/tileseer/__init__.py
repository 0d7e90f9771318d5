"""Tileseer learns which CK Tile grouped-convolution kernel to run on a GPU."""
