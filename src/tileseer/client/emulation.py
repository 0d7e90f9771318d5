"""Kernels compiled and executed on the emulated GPU: what each computes on tiny problems."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from tileseer.compile import compiler, registry, trees
from tileseer.compile.build import units
from tileseer.compile.libraries import Libraries
from tileseer.conv.problem import DIMS, Problem, frame
from tileseer.core import cache as caches
from tileseer.core.errors import UserError
from tileseer.devices import emulated
from tileseer.devices.emulated.problems import tiny_problems
from tileseer.devices.harness.supervisor import Limits, Request, Supervisor, launch_options, problem_numbers
from tileseer.families import support_rules
from tileseer.families.gemm_kernel import GemmKernel
from tileseer.families.registry import of_arch
from tileseer.settings.benchmark import Timing
from tileseer.settings.compile import CkSettings

_FORMAT = "emulated-1"
_LIMITS = Limits(pair_s=1800.0)
STATUSES = ("ok", "race", "wrong_result", "crash", "run_timeout", "unsupported", "compile_error")


@dataclass(frozen=True)
class Emulated:
    """What execution says of one kernel."""

    kernel: str
    status: str
    """One of ``STATUSES``: that of the first problem that is not right. ``unsupported`` if the kernel refuses all
    problems, or if its library has no form for it."""
    right: int
    """Problems with the right result in every order of the waves."""
    wrong: int
    instructions: int
    """Instructions that waves have executed, in one order of each problem."""
    said: str
    """Of the first problem that is not right: what happened, and its dimensions."""
    device_kind: str = "emulated"


@dataclass(frozen=True)
class Workshop:
    """Where kernels are written and compiled; it goes to other processes."""

    arch: str
    api: Path
    templates: Path
    native: Path
    settings: dict[str, dict[str, object]]

    def libraries(self) -> Libraries:
        """What compiles for this arch; ``UserError`` where this machine cannot."""
        return Libraries(*registry.parts(self.settings, self.arch, self.native))

    def verdict(self, kernel: GemmKernel) -> Emulated:
        """Compile one kernel and execute it."""
        level = trees.ck_level(CkSettings.of(self.settings, "ck"), self.api, compiles=True)
        texts = of_arch(self.arch).part("emit").files([kernel], self.arch, self.templates, self.api, level)
        unit = units([kernel], {name: text.encode() for name, text in texts.items()}, self.arch, str(self.templates))[0]
        if unit.lack:
            return Emulated(kernel.name, "unsupported", 0, 0, 0, unit.lack)
        libraries = self.libraries()
        try:
            module = libraries.module([unit])
        except UserError as error:
            return Emulated(kernel.name, "compile_error", 0, 0, 0, " ".join(str(error).split())[:300])
        driver = libraries.emulated_driver()
        key = caches.key(_FORMAT, _source(), driver, module)
        kept = libraries.cache.made_once(key, lambda: json.dumps(asdict(execute(kernel, driver, module))).encode())
        return Emulated(**json.loads(kept))


def verdicts(workshop: Workshop, kernels: Sequence[GemmKernel], jobs: int) -> Iterator[Emulated]:
    """Verdicts in the order of the kernels, made by several processes; those that are known come from the cache."""
    workshop.libraries()
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        yield from pool.map(workshop.verdict, kernels)


def execute(
    kernel: GemmKernel, driver: bytes, module: bytes, pairs: Sequence[tuple[Problem, int]] | None = None
) -> Emulated:
    """Execute a compiled kernel on problems with their split-K, by default the tiny ones.

    Those that our rules or its own checks refuse are left out.
    """
    counts: Counter[str] = Counter()
    instructions, first = 0, ("", "")
    with compiler.workspace({"driver.so": driver, "module.so": module}) as folder:
        loaded = tuple(str(folder / name) for name in ("driver.so", "module.so"))
        with Supervisor(loaded[0], limits=_LIMITS) as supervisor:
            for problem, split_k in _allowed(kernel, tiny_problems(kernel) if pairs is None else pairs):
                numbers = problem_numbers(vars(problem), problem.variant, split_k)
                outcome = supervisor.measure(Request(loaded, kernel.name, numbers, launch_options(Timing())))
                counts[outcome.status] += 1
                instructions += outcome.reply.get("instructions", 0)
                if outcome.status not in ("ok", "unsupported") and not first[0]:
                    first = (outcome.status, f"{outcome.error} ({_told(problem, split_k)})")
    status = first[0] or ("ok" if counts["ok"] else "unsupported")
    wrong = counts.total() - counts["ok"] - counts["unsupported"]
    return Emulated(kernel.name, status, counts["ok"], wrong, instructions, first[1])


def _allowed(kernel: GemmKernel, pairs: Sequence[tuple[Problem, int]]) -> list[tuple[Problem, int]]:
    """Problems that our rules let pass."""
    found = []
    table = type(kernel).frame([kernel])
    for problem, split_k in pairs:
        if not support_rules.check(frame([problem]), table.assign(split_k=split_k), kernel.variant).any():
            found.append((problem, split_k))
    return found


def _told(problem: Problem, split_k: int) -> str:
    """Dimensions that differ from those of a 1x1 convolution of one image, as the option ``--problem`` reads them."""
    plain = {"pad_d": 0, "pad_h": 0, "pad_w": 0}
    dims = [f"{name}={getattr(problem, name)}" for name in DIMS if getattr(problem, name) != plain.get(name, 1)]
    return ",".join(dims) + (f" split-K {split_k}" if split_k > 1 else "")


def _source() -> str:
    """Digest of the executor: with another one, kernels are executed again."""
    digest = hashlib.sha256()
    for path in sorted(Path(str(emulated.__file__)).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
