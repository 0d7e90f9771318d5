"""Which vector widths a tile may use in the rule set ``full``."""

from __future__ import annotations

from tileseer.gpu.arch import Triple

WIDTHS = (1, 2, 4, 8, 16)
MAX_BYTES = 32
THREADS_A_WAVE = 64
"""The reference assumes waves of 64 on every arch; so do the lists that this reproduces."""


def vectors_fit(vectors: Triple, tile: Triple, waves: Triple, element_bytes: float) -> bool:
    """Tell whether the threads of a block can load A (m, k) and B (n, k) evenly and store rows of C in vectors.

    The elements of A or B a thread loads must be a multiple of the vector, or the vector a multiple of them.
    """
    threads = THREADS_A_WAVE * waves[0] * waves[1] * waves[2]
    (rows_a, rows_b, depth), (vec_a, vec_b, vec_c) = tile, vectors
    if rows_a * depth % threads or rows_b * depth % threads:
        return False
    if any(width not in WIDTHS or width * element_bytes > MAX_BYTES for width in vectors):
        return False
    share_a, share_b = rows_a * depth // threads, rows_b * depth // threads
    return _commensurate(share_a, vec_a) and _commensurate(share_b, vec_b) and rows_b % vec_c == 0


def _commensurate(share: int, width: int) -> bool:
    return share % width == 0 or width % share == 0
