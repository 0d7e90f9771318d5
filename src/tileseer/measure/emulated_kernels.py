"""Compiled kernels on the emulated GPU: each is right, wrong, or has a race between its waves."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import amdgpu_emulator
from tileseer.compile import compiler, instructions
from tileseer.compile.base import CompileUnit
from tileseer.compile.libraries import Libraries
from tileseer.config.benchmark import Timing
from tileseer.core import cache as caches
from tileseer.core import draws
from tileseer.core.errors import UserError
from tileseer.gpus.hardware import Hardware
from tileseer.kernels.gemm_kernel import GemmKernel
from tileseer.kernels.support import check_support
from tileseer.measure.emulated_problems import tiny_problems
from tileseer.measure.harness.supervisor import Request, Supervisor, WorkerLimits, launch_options, problem_numbers
from tileseer.problems.problem import DIMS, Problem, problem_frame

_FORMAT = "verdict-3"
_LIMITS = WorkerLimits(pair_s=1800.0)
STATUSES = ("ok", "race", "wrong_result", "crash", "run_timeout", "unsupported", "compile_error", "skipped")


@dataclass(frozen=True)
class KernelVerdict:
    """What the execution of one kernel has shown."""

    kernel: str
    status: str
    """One of ``STATUSES``: that of the first problem that is not right. ``unsupported`` if the kernel refuses all
    problems, or if its library has no form for it."""
    right: int = 0
    """Problems with the right result and without a race."""
    wrong: int = 0
    instructions: int = 0
    """Instructions that waves have executed."""
    issue_cycles: int = 0
    """Static cycles of a compute unit for those of them that ``instructions.unit_cycles`` covers, summed over waves.
    No time: nothing waits, and it says nothing of memory, of what runs side by side, and of a problem of real size."""
    said: str = ""
    """Of the first problem that is not right: what happened, and its dimensions."""
    device_kind: str = "emulated"


@dataclass(frozen=True)
class Emulation:
    """Executes kernels, and keeps the verdicts in the shared cache."""

    libraries: Libraries
    gpu: Hardware
    """Product that cycles are counted for."""
    most: int = 0
    """Problems to execute of each kernel, drawn by the seed; 0: all."""
    seed: int = 1

    def build_and_execute(self, units: Sequence[CompileUnit]) -> list[KernelVerdict]:
        """Compile kernels together, or one by one where that fails, and execute them."""
        try:
            module = self.libraries.module(units)
        except UserError as error:
            if len(units) > 1:
                return [verdict for unit in units for verdict in self.build_and_execute([unit])]
            message = " ".join(str(error).split())[-300:]
            return [KernelVerdict(units[0].kernel.name, "compile_error", said=message)]
        with compiler.workspace({"driver.so": self.libraries.emulated_driver(), "module.so": module}) as folder:
            return [self.verdict(unit, folder / "driver.so", folder / "module.so") for unit in units]

    def verdict(self, unit: CompileUnit, driver: Path, module: Path) -> KernelVerdict:
        """Execute one kernel of a module; its verdict is kept by what driver and kernel are compiled from."""
        kernel = unit.kernel
        assert isinstance(kernel, GemmKernel)
        pairs = supported_problems(kernel, tiny_problems(kernel))
        if self.most:
            pairs.sort(key=lambda pair: draws.of_name(f"{self.seed} {kernel.name} {_dims_text(*pair)}"))
        settings = [self.gpu.model_dump_json(), str(self.most), *(_dims_text(*pair) for pair in pairs)]
        key = caches.key(_FORMAT, _code_digest(), driver.read_bytes(), self.libraries.object_key([unit]), *settings)

        def execute() -> bytes:
            return json.dumps(asdict(execute_kernel(kernel, driver, module, pairs, self.gpu, self.most))).encode()

        return KernelVerdict(**json.loads(self.libraries.cache.made_once(key, execute)))


def supported_problems(kernel: GemmKernel, pairs: Sequence[tuple[Problem, int]]) -> list[tuple[Problem, int]]:
    """Those problems, with their split-K, that our support rules let pass."""
    table = type(kernel).frame([kernel])
    return [
        (problem, split_k)
        for problem, split_k in pairs
        if not check_support(problem_frame([problem]), table.assign(split_k=split_k), kernel.variant).any()
    ]


def execute_kernel(
    kernel: GemmKernel, driver: Path, module: Path, pairs: Sequence[tuple[Problem, int]], gpu: Hardware, most: int = 0
) -> KernelVerdict:
    """Execute a kernel on problems, in their order, until ``most`` of them were not refused by its own checks."""
    counts: Counter[str] = Counter()
    opcodes: Counter[str] = Counter()
    failure = ("", "")
    modules = (str(module.resolve()),)
    # A worker of its own: what a kernel reads beside its tensors is the same in every run.
    with Supervisor(str(driver.resolve()), limits=_LIMITS) as supervisor:
        for problem, split_k in pairs:
            numbers = problem_numbers(vars(problem), problem.variant, split_k)
            outcome = supervisor.measure(Request(modules, kernel.name, numbers, launch_options(Timing())))
            counts[outcome.status] += 1
            opcodes.update(outcome.reply.get("opcodes", {}))
            if outcome.status not in ("ok", "unsupported") and not failure[0]:
                failure = (outcome.status, f"{outcome.error} ({_dims_text(problem, split_k)})")
            if counts.total() - counts["unsupported"] == most > 0:
                break
    status = failure[0] or ("ok" if counts["ok"] else "unsupported")
    wrong = counts.total() - counts["ok"] - counts["unsupported"]
    cycles = round(sum(instructions.unit_cycles(opcodes, gpu).values()))
    return KernelVerdict(kernel.name, status, counts["ok"], wrong, opcodes.total(), cycles, failure[1])


def _dims_text(problem: Problem, split_k: int) -> str:
    """Dimensions that differ from those of a 1x1 convolution of one image, as the option ``--problem`` reads them."""
    plain = {"pad_d": 0, "pad_h": 0, "pad_w": 0}
    dims = [f"{name}={getattr(problem, name)}" for name in DIMS if getattr(problem, name) != plain.get(name, 1)]
    return ",".join(dims) + (f" split-K {split_k}" if split_k > 1 else "")


@cache
def _code_digest() -> str:
    """Digest of the emulator and of the table of cycles: with another one, kernels are executed again."""
    digest = hashlib.sha256()
    for path in [*sorted(Path(amdgpu_emulator.__file__).parent.glob("*.py")), Path(instructions.__file__)]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
