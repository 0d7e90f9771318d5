"""A library as small as one can be: square tiles, one main loop, one rule of each sort."""
