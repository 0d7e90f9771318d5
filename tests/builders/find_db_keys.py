"""Keys of MIOpen's find-db, written for tests; ``dataset.find_db`` reads them."""

from tileseer.dataset.find_db import DTYPES, LAYOUTS, VARIANTS
from tileseer.problems.problem import Problem


def key_of(problem: Problem) -> str:
    """Key of a problem as newer files write it."""
    dims, ndim = vars(problem), problem.ndim
    first, second = [dims["C"], dims["Di"], dims["Hi"], dims["Wi"]], [dims["K"], *problem.output]
    if problem.variant != "forward":
        first, second = second, first
    sizes = [first[0], *first[4 - ndim :]]
    others = [second[0], *second[4 - ndim :], dims["N"]]
    axes = [("Z", "Y", "X"), *((f"{name}_d", f"{name}_h", f"{name}_w") for name in ("pad", "stride", "dilation"))]
    filters, *rest = ("x".join(str(dims[name]) for name in names[-ndim:]) for names in axes)
    words = [*map(str, sizes), filters, *map(str, others), *rest, "0"]
    words += [_key_of(LAYOUTS, ndim), _key_of(DTYPES, problem.dtype), _key_of(VARIANTS, problem.variant)]
    return "-".join(words) + (f"_g{problem.G}" if problem.G > 1 else "")


def _key_of(words: dict, value: object) -> str:
    return next(word for word, meaning in words.items() if meaning == value)
