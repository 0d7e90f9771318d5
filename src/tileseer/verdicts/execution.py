"""Compiled kernels on the emulated GPU: each is right, wrong, or depends on the order of its waves."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from tileseer.compile import instructions
from tileseer.compile.base import CompileUnit
from tileseer.compile.libraries import Libraries
from tileseer.conv.problem import DIMS, Problem, frame
from tileseer.core import cache as caches
from tileseer.core import draws
from tileseer.devices import emulated
from tileseer.devices.emulated.problems import tiny_problems
from tileseer.devices.harness.supervisor import Limits, Request, Supervisor, launch_options, problem_numbers
from tileseer.families import support_rules
from tileseer.families.gemm_kernel import GemmKernel
from tileseer.gpu.hardware import Hardware
from tileseer.settings.benchmark import Timing

_FORMAT = "verdict-2"
_LIMITS = Limits(pair_s=1800.0)
STATUSES = ("ok", "race", "wrong_result", "crash", "run_timeout", "unsupported", "compile_error", "skipped")
Pair = tuple[Problem, int]
"""A problem and its split-K."""


@dataclass(frozen=True)
class Verdict:
    """What execution says of one kernel."""

    kernel: str
    status: str
    """One of ``STATUSES``: that of the first problem that is not right. ``unsupported`` if the kernel refuses all
    problems, or if its library has no form for it."""
    right: int = 0
    """Problems with the right result in every order of the waves."""
    wrong: int = 0
    instructions: int = 0
    """Instructions that waves have executed, in one order of each problem."""
    issue_cycles: int = 0
    """Static cycles of a compute unit for those of them that ``instructions.unit_cycles`` knows, summed over waves.
    No time: nothing waits, and it says nothing of memory, of what runs side by side, and of a problem of real size."""
    said: str = ""
    """Of the first problem that is not right: what happened, and its dimensions."""
    device_kind: str = "emulated"


def verdict(
    libraries: Libraries, unit: CompileUnit, loaded: tuple[Path, Path], gpu: Hardware, most: int = 0, seed: int = 1
) -> Verdict:
    """Verdict on one kernel of a library, kept in the shared cache by what driver and kernel are compiled from.

    ``loaded``: driver of the emulated GPU and library. ``gpu``: product that cycles are counted for. ``most``: problems
    to execute, drawn by the seed; 0: all.
    """
    kernel = unit.kernel
    assert isinstance(kernel, GemmKernel)
    pairs = allowed(kernel, tiny_problems(kernel))
    if most:
        pairs.sort(key=lambda pair: draws.of_name(f"{seed} {kernel.name} {_told(*pair)}"))
    asked = [gpu.model_dump_json(), str(most), *(_told(*pair) for pair in pairs)]
    key = caches.key(_FORMAT, _source(), loaded[0].read_bytes(), libraries.object_key([unit]), *asked)

    def executed() -> bytes:
        return json.dumps(asdict(execute(kernel, loaded, pairs, gpu, most))).encode()

    return Verdict(**json.loads(libraries.cache.made_once(key, executed)))


def allowed(kernel: GemmKernel, pairs: Sequence[Pair]) -> list[Pair]:
    """Problems that our rules let pass."""
    table = type(kernel).frame([kernel])
    return [
        (problem, split_k)
        for problem, split_k in pairs
        if not support_rules.check(frame([problem]), table.assign(split_k=split_k), kernel.variant).any()
    ]


def execute(
    kernel: GemmKernel, loaded: tuple[Path, Path], pairs: Sequence[Pair], gpu: Hardware, most: int = 0
) -> Verdict:
    """Execute a kernel on problems, in their order, until ``most`` of them were not refused by its own checks."""
    counts: Counter[str] = Counter()
    opcodes: Counter[str] = Counter()
    first = ("", "")
    paths = (str(loaded[0].resolve()), str(loaded[1].resolve()))
    # A worker of its own: what a kernel reads beside its tensors is the same in every run.
    with Supervisor(paths[0], limits=_LIMITS) as supervisor:
        for problem, split_k in pairs:
            numbers = problem_numbers(vars(problem), problem.variant, split_k)
            outcome = supervisor.measure(Request(paths, kernel.name, numbers, launch_options(Timing())))
            counts[outcome.status] += 1
            opcodes.update(outcome.reply.get("opcodes", {}))
            if outcome.status not in ("ok", "unsupported") and not first[0]:
                first = (outcome.status, f"{outcome.error} ({_told(problem, split_k)})")
            if counts.total() - counts["unsupported"] == most > 0:
                break
    status = first[0] or ("ok" if counts["ok"] else "unsupported")
    wrong = counts.total() - counts["ok"] - counts["unsupported"]
    cycles = round(sum(instructions.unit_cycles(opcodes, gpu).values()))
    return Verdict(kernel.name, status, counts["ok"], wrong, opcodes.total(), cycles, first[1])


def _told(problem: Problem, split_k: int) -> str:
    """Dimensions that differ from those of a 1x1 convolution of one image, as the option ``--problem`` reads them."""
    plain = {"pad_d": 0, "pad_h": 0, "pad_w": 0}
    dims = [f"{name}={getattr(problem, name)}" for name in DIMS if getattr(problem, name) != plain.get(name, 1)]
    return ",".join(dims) + (f" split-K {split_k}" if split_k > 1 else "")


@cache
def _source() -> str:
    """Digest of the executor and of the table of cycles: with another one, kernels are executed again."""
    digest = hashlib.sha256()
    for path in [*sorted(Path(str(emulated.__file__)).parent.glob("*.py")), Path(instructions.__file__)]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
