"""Compiled kernels on the emulated GPU: each is right, wrong, or has a race between its waves."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tileseer.build import compiler
from tileseer.build.base import CompileUnit
from tileseer.build.modules import Libraries
from tileseer.core import cache as caches
from tileseer.core.code_digest import digest_of_code, identity_of_package
from tileseer.core.errors import UserError
from tileseer.core.reading import LARGEST_OBJECT, read_bytes
from tileseer.facts.benchmark import Timing
from tileseer.facts.hardware import Hardware
from tileseer.libraries.gemm_kernel import GemmKernel
from tileseer.libraries.registry import check_support
from tileseer.measure.harness.supervisor import Request, Supervisor, WorkerLimits, launch_options, problem_numbers
from tileseer.problems.problem import DIMS, problem_frame
from tileseer_emulated.cycles import unit_cycles
from tileseer_emulated.driver import instance_text
from tileseer_emulated.tiny_problems import GRIDS, TinyProblem, tiny_problems

_VERDICT_FORMAT = "verdict-6"
# What is executed is the same in every try.
_WORKER_LIMITS = WorkerLimits(pair_s=900.0, tries=1)
VERDICT_STATUSES = (
    *("ok", "race", "unwritten_load", "wrong_result", "crash", "hang", "run_timeout"),
    *("not_executable", "unsupported", "compile_error", "skipped"),
)
LISTED_CHARACTERS = 1000
"""Of instructions that were not executed."""
_LAST = ("hang", "run_timeout", "not_executable")
"""Statuses after which no other problem is executed: it would take as long to end as this one."""


@dataclass(frozen=True)
class KernelVerdict:
    """What the execution of one kernel has shown."""

    kernel: str
    status: str
    """One of ``VERDICT_STATUSES``, of the first problem that is not right; ``unsupported`` if the kernel refuses all
    problems, or if its library has no form for it."""
    right: int = 0
    """Problems with the right result and without a race."""
    wrong: int = 0
    instructions: int = 0
    """Instructions that waves have executed."""
    issue_cycles: int = 0
    """Static cycles of a compute unit for those of them that ``cycles.unit_cycles`` covers, summed over waves.
    No time: nothing waits, and it says nothing of memory, of what runs side by side, and of a problem of real size."""
    instances: int = 0
    """Instances of the kernel that are compiled: they differ in loop, tail, and in how they write the result."""
    launched: int = 0
    """Instances that the problems have launched."""
    executed: float = 0.0
    """Share of the instructions of all instances that was executed."""
    not_launched: str = ""
    """What kind of instances no problem launches."""
    not_executed: str = ""
    """Opcodes of the launched instances that no problem has executed, with their addresses."""
    said: str = ""
    """Of the first problem that is not right: what happened, and its dimensions."""
    device_kind: str = "emulated"


@dataclass(frozen=True)
class Emulation:
    """Executes kernels, and keeps the verdicts in the shared cache."""

    libraries: Libraries
    gpu: Hardware
    """Product that cycles are counted for."""
    few: bool = False
    """Whether each instance is executed with grids of many tiles alone, and with others only if none launch it."""

    def build_and_execute(self, units: Sequence[CompileUnit]) -> list[KernelVerdict]:
        """Compile kernels together, or one by one where that fails, and execute them."""
        try:
            module = self.libraries.module(units)
        except UserError as error:
            if len(units) > 1:
                return [verdict for unit in units for verdict in self.build_and_execute([unit])]
            message = str(error).partition("\n")[0][-300:]
            return [KernelVerdict(units[0].kernel.name, "compile_error", said=message)]
        with compiler.workspace({"driver.so": self.libraries.emulated_driver(), "module.so": module}) as folder:
            return [self.verdict(unit, folder / "driver.so", folder / "module.so") for unit in units]

    def verdict(self, unit: CompileUnit, driver: Path, module: Path) -> KernelVerdict:
        """Execute one kernel of a module; its verdict is kept by what driver and kernel are compiled from."""
        kernel = unit.kernel
        assert isinstance(kernel, GemmKernel)
        pairs = supported_problems(kernel, tiny_problems(kernel))
        settings = [self.gpu.model_dump_json(), str(self.few), *(f"{dims_text(pair)} {pair.shows}" for pair in pairs)]
        code = [identity_of_package(name) for name in ("amdgpu_emulator", "tileseer_emulated")]
        code.append(digest_of_code("tileseer/build/instructions.py"))
        key = caches.key(
            _VERDICT_FORMAT, *code, read_bytes(driver, LARGEST_OBJECT), self.libraries.object_key([unit]), *settings
        )

        def execute() -> bytes:
            return json.dumps(asdict(execute_kernel(kernel, driver, module, pairs, self.gpu, self.few))).encode()

        return KernelVerdict(**json.loads(self.libraries.cache.made_once(key, execute)))


def supported_problems(kernel: GemmKernel, pairs: Sequence[TinyProblem]) -> list[TinyProblem]:
    """Return those problems that our support rules let pass."""
    table, problems = type(kernel).frame([kernel]), problem_frame([pair.problem for pair in pairs])
    refused = {
        split_k: check_support(problems, table.assign(split_k=split_k), kernel.variant).reshape(-1) != 0
        for split_k in {pair.split_k for pair in pairs}
    }
    return [pair for number, pair in enumerate(pairs) if not refused[pair.split_k][number]]


def execute_kernel(
    kernel: GemmKernel, driver: Path, module: Path, pairs: Sequence[TinyProblem], gpu: Hardware, few: bool = False
) -> KernelVerdict:
    """Execute a kernel on the problems that show something new of an instance, or on few (``Emulation.few``)."""
    counts: Counter[str] = Counter()
    opcodes: Counter[str] = Counter()
    instances: dict[str, tuple[int, int]] = {}
    left: dict[str, str] = {}
    failure = ("", "")
    # A worker of its own: what a kernel reads beside its tensors is the same in every run.
    with Supervisor(str(driver.resolve()), limits=_WORKER_LIMITS) as supervisor:
        requests = [_request(kernel, module, pair) for pair in pairs]
        launched = [supervisor.instances(request) for request in requests]
        for number in chosen_problems(pairs, launched, few):
            outcome = supervisor.measure(requests[number])
            counts[outcome.status] += 1
            opcodes.update(outcome.reply.get("opcodes", {}))
            instances.update(outcome.reply.get("instances", {}))
            left.update(outcome.reply.get("not_executed", {}))
            if outcome.status not in ("ok", "unsupported") and not failure[0]:
                failure = (outcome.status, f"{outcome.error} ({dims_text(pairs[number])})")
            if outcome.status in _LAST:
                break
    status = failure[0] or ("ok" if counts["ok"] else "unsupported")
    wrong = counts.total() - counts["ok"] - counts["unsupported"]
    cycles = round(sum(unit_cycles(opcodes, gpu).values()))
    missing = [name for name, (executed, _) in instances.items() if not executed]
    executed, every = (sum(pair[i] for pair in instances.values()) for i in (0, 1))
    return KernelVerdict(
        kernel.name, status, counts["ok"], wrong, opcodes.total(), cycles, len(instances),
        len(instances) - len(missing), round(executed / every, 3) if every else 0.0,
        "; ".join(sorted(map(instance_text, missing))), _listed(left), failure[1],
    )  # fmt: skip


def _listed(left: dict[str, str]) -> str:
    """Return what of each instance was not executed, as one short text."""
    text = "; ".join(sorted(f"{instance_text(name)}: {opcodes}" for name, opcodes in left.items() if opcodes))
    return text if len(text) <= LISTED_CHARACTERS else f"{text[:LISTED_CHARACTERS]}..."


def _request(kernel: GemmKernel, module: Path, pair: TinyProblem) -> Request:
    numbers = problem_numbers(vars(pair.problem), pair.problem.variant, pair.split_k)
    return Request((str(module.resolve()),), kernel.name, numbers, launch_options(Timing()))


def chosen_problems(pairs: Sequence[TinyProblem], launched: Sequence[Sequence[str]], few: bool) -> list[int]:
    """Return the numbers of the problems to execute, by the instances that each launches.

    A problem is left out if all that it shows was shown of its instances. ``few``: as ``Emulation.few``.
    """
    chosen: list[int] = []
    shown: set[tuple[str, str]] = set()
    seen: set[str] = set()
    numbers = [number for number, names in enumerate(launched) if names]
    if few:
        numbers.sort(key=lambda number: pairs[number].shows not in GRIDS)
    for number in numbers:
        names, shows = launched[number], pairs[number].shows
        is_new, is_asked = not seen.issuperset(names), shows in GRIDS if few else bool(shows)
        if is_new or (is_asked and not shown.issuperset((shows, name) for name in names)):
            chosen.append(number)
            seen.update(names)
            shown.update((shows, name) for name in names)
    return chosen


def coverage_text(verdict: KernelVerdict) -> str:
    """Return how much of a kernel was executed."""
    return f"{verdict.launched} of {verdict.instances} instances, {verdict.executed:.0%} of their instructions"


def dims_text(pair: TinyProblem) -> str:
    """Return the dimensions other than those of a 1x1 convolution of one image, as ``--problem`` reads them."""
    plain = {"pad_d": 0, "pad_h": 0, "pad_w": 0}
    values = {name: getattr(pair.problem, name) for name in DIMS}
    dims = [f"{name}={value}" for name, value in values.items() if value != plain.get(name, 1)]
    return ",".join(dims) + (f" split-K {pair.split_k}" if pair.split_k > 1 else "")
