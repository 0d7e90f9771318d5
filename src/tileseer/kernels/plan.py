"""The plan: the chunks of an operation. A chunk is the unit of a job, the kernel that of a result."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tileseer.core import draws, seal

HEADER = "chunk\tkernels\tdigest\n"


def chunk_of(kernel: str, chunks: int) -> int:
    """Chunk of a kernel by the hash of its name: one more kernel changes one chunk."""
    return draws.of_name(kernel) % chunks


def text(kernels: Iterable[tuple[int, str]]) -> str:
    """Text of the plan file: each chunk with the number and the digest of its kernels.

    ``kernels`` are (chunk, everything that later stages know of the kernel).
    """
    chunks: dict[int, list[str]] = defaultdict(list)
    for chunk, content in kernels:
        chunks[chunk].append(content)
    lines = [HEADER]
    for chunk in sorted(chunks):
        digest = hashlib.sha256("\n".join(sorted(chunks[chunk])).encode()).hexdigest()[:16]
        lines.append(f"{chunk}\t{len(chunks[chunk])}\t{digest}\n")
    return "".join(lines)


def read(path: Path) -> dict[str, str]:
    """Digest by chunk number, in file order; the numbers are texts, as Snakemake's wildcards are."""
    seal.check_seal(path)
    fields = (line.split("\t") for line in path.read_text().splitlines()[1:])
    return {chunk: digest for chunk, _, digest in fields}
