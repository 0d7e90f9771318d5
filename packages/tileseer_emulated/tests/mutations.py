"""Change one instruction of a compiled kernel at a time, and see whether its execution tells.

    mutations.py DRIVER MODULE COUNT KERNEL...

For each kernel COUNT changes of each kind are drawn among all instructions that its instances execute, on the product's
problems or on *real grids*: convolutions of another making, with more tiles, groups and images. All changes are made
that spoil an argument: the address of a tensor, or the distance of two groups.

The product's problems have to find a change: by a wrong result, a fault, a race, or a load of what nothing has written.
What they do not find is executed on the real grids, and what concerns the order of waves in more orders of them:
``missed`` if that tells, else ``equivalent``, with the reason. The answer is JSON, one line a change, and a table.
"""

from __future__ import annotations

import ctypes
import json
import math
import random
import sys
from collections import Counter, defaultdict
from dataclasses import replace

from tinygrad.runtime.autogen.amd.cdna import ins

from amdgpu_emulator import EmulationFault
from amdgpu_emulator.decoder import encoded
from tileseer.facts.benchmark import Timing
from tileseer.libraries.ck_tile.kernel import parse
from tileseer.measure.harness import abi
from tileseer.measure.harness.supervisor import launch_options, problem_numbers
from tileseer.problems.problem import Problem
from tileseer_emulated.driver import EmulatedDriver, instance_text
from tileseer_emulated.kernels import chosen_problems, supported_problems
from tileseer_emulated.tiny_problems import REDUCTION_STEPS, TinyProblem, tiny_problems

MORE_ORDERS = 12
MOST_INSTRUCTIONS = 400_000
"""Of a workgroup: some ten times what one executes."""
NOP = (0xBF800000).to_bytes(4, "little")
OPPOSITES = {"SCC0": "SCC1", "VCCZ": "VCCNZ", "EXECZ": "EXECNZ"}
OPPOSITES |= {other: one for one, other in OPPOSITES.items()}
WITHOUT_CARRY = {
    "S_ADDC_U32": "S_ADD_U32", "S_SUBB_U32": "S_SUB_U32", "V_ADDC_CO_U32_E32": "V_ADD_CO_U32_E32",
    "V_ADDC_CO_U32": "V_ADD_CO_U32", "V_SUBB_CO_U32_E32": "V_SUB_CO_U32_E32",
}  # fmt: skip
LOW_PRODUCT = {"S_MUL_HI_U32": "S_MUL_I32", "S_MUL_HI_I32": "S_MUL_I32", "V_MUL_HI_U32": "V_MUL_LO_U32"}
OTHER_ARITHMETIC = {
    "S_ADD_I32": "S_SUB_I32", "S_SUB_I32": "S_ADD_I32", "S_MIN_I32": "S_MAX_I32", "S_ADD_U32": "S_SUB_U32",
    "V_ADD_U32_E32": "V_SUB_U32_E32", "V_SUB_U32_E32": "V_ADD_U32_E32",
}  # fmt: skip
SHIFTS = ("S_LSHL_B", "S_LSHR_B", "S_ASHR_I", "V_LSHLREV_B", "V_LSHRREV_B", "V_ASHRREV_I")
OF_ORDER = ("barrier", "wait")
REASONS = {
    "barrier": "no accesses of two waves meet without it, and no order of the waves changes a result",
    "wait": "what it waits for is done, or awaited by what follows, and no order of the waves changes a result",
    "carry": "no sum carries on the real grids, whose tensors lie across 4 GiB as well: a term's low word is 0",
}
OTHER_REASON = "all results on the real grids are the same bits"


def changed(inst, **fields):
    """Bytes of an instruction with some fields of its encoding replaced."""
    raw = inst._raw
    for name, value in fields.items():
        place = dict(type(inst)._fields)[name]
        raw = raw & ~(place.mask << place.lo) | (value & place.mask) << place.lo
    return raw.to_bytes(inst.size(), "little")


def field(inst, name):
    place = dict(type(inst)._fields)[name]
    return inst._raw >> place.lo & place.mask


def of_table(inst, table):
    """The instruction with the opcode that a table has for its own; nothing if there is none."""
    other = table.get(inst.op.name)
    if other is not None and hasattr(type(inst.op), other):
        yield changed(inst, op=type(inst.op)[other].value)


def mutants(inst):
    """Kind and new bytes of each way to spoil an instruction."""
    name, form = inst.op.name, type(inst).__name__
    if name == "S_BARRIER":
        yield "barrier", NOP
    if name == "S_WAITCNT":
        yield "wait", NOP
        vm, lgkm = inst.simm16 & 15 | inst.simm16 >> 14 << 4, inst.simm16 >> 8 & 15
        if vm < 62:
            more = (vm + 1) & 15 | (vm + 1) >> 4 << 14
            yield "wait", changed(inst, simm16=inst.simm16 & ~(15 | 3 << 14) | more)
        if lgkm < 14:
            yield "wait", changed(inst, simm16=inst.simm16 & ~(15 << 8) | lgkm + 1 << 8)
    if ("STORE" in name and form in ("GLOBAL", "FLAT", "MUBUF")) or (form == "DS" and "WRITE" in name):
        yield "store", NOP * (inst.size() // 4)
    if form == "DS" and ("READ" in name or "WRITE" in name):
        yield "LDS", changed(inst, offset0=field(inst, "offset0") ^ 0x10)
    if name.startswith("V_MFMA"):
        if field(inst, "src0") != field(inst, "src1"):
            yield "matrix register", changed(inst, src0=field(inst, "src1"), src1=field(inst, "src0"))
        for operand in ("src0", "src1", "src2"):
            if field(inst, operand) >= 256:
                yield "matrix register", changed(inst, **{operand: field(inst, operand) ^ 2})
    if name.startswith("S_CBRANCH_") and name.removeprefix("S_CBRANCH_") in OPPOSITES:
        other = f"S_CBRANCH_{OPPOSITES[name.removeprefix('S_CBRANCH_')]}"
        yield "branch", changed(inst, op=ins.SOPPOp[other].value)
    if form == "SOPC" and name.startswith("S_CMP") and 128 <= field(inst, "ssrc1") < 192:
        yield "branch", changed(inst, ssrc1=field(inst, "ssrc1") + 1)
    if name.startswith("S_CMPK"):
        yield "branch", changed(inst, simm16=field(inst, "simm16") + 1)
    yield from (("carry", content) for content in of_table(inst, WITHOUT_CARRY))
    yield from (("division", content) for content in of_table(inst, LOW_PRODUCT))
    yield from (("arithmetic", content) for content in of_table(inst, OTHER_ARITHMETIC))
    if name.startswith(SHIFTS):
        amount = "src0" if name.startswith("V_") else "ssrc1"
        if 129 <= field(inst, amount) < 160:
            yield "shift", changed(inst, **{amount: field(inst, amount) + 1})
    is_select = form == "VOP3" and name.startswith(("V_CNDMASK", "V_PERM", "V_LSHL_ADD_U32", "V_LSHL_OR"))
    if is_select and field(inst, "src0") != field(inst, "src1"):
        yield "operands", changed(inst, src0=field(inst, "src1"), src1=field(inst, "src0"))
    if form == "MUBUF" and inst.op.name not in ("BUFFER_INV", "BUFFER_WBL2"):
        yield "address", changed(inst, offset=field(inst, "offset") + 16)


REAL_AXES = (
    {"Y": 1, "X": 2, "stride_h": 3, "stride_w": 1, "dilation_h": 1, "dilation_w": 3, "pad_h": 0, "pad_w": 2},
    {"Y": 3, "X": 2, "stride_h": 1, "stride_w": 2, "dilation_h": 2, "dilation_w": 5, "pad_h": 3, "pad_w": 1},
)
SPECIAL_AXES = {
    "filter1x1_stride1_pad0": {"Y": 1, "X": 1}, "filter1x1_pad0": {"Y": 1, "X": 1, "stride_h": 3, "stride_w": 2},
    "filter3x3": {"Y": 3, "X": 3, "stride_h": 2, "dilation_w": 3, "pad_h": 2, "pad_w": 1},
}  # fmt: skip


def real_problems(kernel):
    """Convolutions with grids of 9x5 and 4x7 tiles, images and groups, of each depth, and of another making.

    Each has stride, dilation and padding at once, and its input ends beyond the last filter.
    """
    vector, merged, special = max(kernel.vectors), kernel.num_groups_to_merge, kernel.specialization
    share = 1 if kernel.variant == "bwd_data" else merged
    images = {"N": 1, "Di": 3} if kernel.ndim == 3 else {"N": 3}
    for split_k in (1, 3):
        for (rows, columns), own in zip(((9, 5), (4, 7)), REAL_AXES, strict=True):
            axes = {"stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "pad_h": 0, "pad_w": 0}
            axes |= SPECIAL_AXES.get(special, own)
            for steps in REDUCTION_STEPS:
                m = kernel.tile_m * (rows - 1) // share + max(vector, kernel.tile_m // 2)
                n = kernel.tile_n * (columns - 1) // share + vector
                k, taps = kernel.tile_k * steps, axes["Y"] * axes["X"]
                if kernel.variant == "bwd_weight":
                    channels, height, width = {"K": m, "C": n / taps}, -(-k * split_k // 15), 5
                else:
                    first, other = ("C", "K") if kernel.variant == "forward" else ("K", "C")
                    channels, height, width = {first: k / taps, other: n}, -(-m // 21), 7
                dims = images | axes | {"G": 2 * merged}
                for image, tap, axis, size in (("Hi", "Y", "h", height), ("Wi", "X", "w", width)):
                    reach = axes[f"dilation_{axis}"] * (axes[tap] - 1)
                    if kernel.variant != "bwd_data":
                        size = size * axes[f"stride_{axis}"] + reach - 2 * axes[f"pad_{axis}"]
                    dims[image] = max(size, 1 + reach)
                dims |= {name: math.ceil(size / vector) * vector * dims["G"] for name, size in channels.items()}
                yield TinyProblem(Problem.from_dims(kernel.variant, kernel.dtype, **dims), split_k, f"{rows}x{columns}")


def with_argument(emulated, old, new, instances=""):
    """The launch of an emulated GPU, with numbers of eight bytes replaced among the arguments of some instances."""
    launch = emulated.gpu.launch

    def changed_launch(code, kernel, grid, block, values, **options):
        found, replacement = (b"".join(n.to_bytes(8, "little") for n in numbers) for numbers in (old(), new()))
        values = [value.replace(found, replacement) if instances in kernel else value for value in values]
        return launch(code, kernel, grid, block, values, **options)

    return changed_launch


def argument_mutants(emulated, problem):
    """What, and a launch, of each way to spoil an argument."""

    def of(*names, shift=0):
        memory = emulated.gpu.memory
        return lambda: [
            next((base for base, one in memory._allocations.items() if one.name == name), 1 << 63) + shift
            for name in names
        ]

    yield "output one element further", with_argument(emulated, of("the output c"), of("the output c", shift=2))
    yield "an operand is the output", with_argument(emulated, of("the operand a"), of("the output c"))
    yield "the output is an operand", with_argument(emulated, of("the output c"), of("the operand a"))
    g, c, k, *_ = problem[1:]
    taps = problem[7] * problem[8] * problem[9]
    groups = c // g, k // g * c // g * taps, k // g
    for number in range(3 if problem[19] == 0 and g > 1 else 0):
        doubled = [stride * (1 + (i == number)) for i, stride in enumerate(groups)]
        # Only where there is a main loop: problems with few steps must not be what finds it.
        launch = with_argument(emulated, lambda: groups, lambda doubled=doubled: doubled, "Lb1ELNS_10TailNumber")
        yield "group offset doubled", launch


class Runs:
    """One kernel's problems, executed with the machine code as it is now."""

    def __init__(self, library, emulated, name):
        self.library, self.emulated, self.kernel = library, emulated, parse(name)
        self.index = library.find_kernel(name.encode())
        if self.index < 0:
            raise SystemExit(library.error())
        self.code = None
        product, real = (self._chosen(list(made(self.kernel))) for made in (tiny_problems, real_problems))
        self.product, self.real = ([self._known(problem) for problem in problems] for problems in (product, real))

    def _chosen(self, pairs):
        """Numbers of the problems that show something new of an instance."""
        pairs, launched = supported_problems(self.kernel, pairs), []
        problems = [problem_numbers(vars(one.problem), self.kernel.variant, one.split_k) for one in pairs]
        self.emulated.is_dry = True
        for problem in problems:
            self.emulated.bound.clear()
            code, _ = self._verify(problem, verify_millions=1)
            launched.append(sorted(self.emulated.bound) if code == abi.OK else [])
        self.emulated.is_dry = False
        return [problems[number] for number in chosen_problems(pairs, launched, False)]

    def _verify(self, problem, **changes):
        check, options = abi.ConvCheck(), abi.ConvOptions(**(launch_options(Timing()) | changes))
        self.emulated.races.clear()
        self.emulated.unwritten.clear()
        pair = ctypes.byref(abi.ConvProblem(*problem)), ctypes.byref(options)
        return self.library.verify(self.index, *pair, ctypes.byref(check)), check

    def _known(self, problem):
        """A problem with the addresses that it executes and its right result."""
        addresses, launch = set(), self.emulated.gpu.launch

        def record(code, *words, **options):
            tensors = {
                base: len(one.u8) for base, one in self.emulated.gpu.memory._allocations.items()
                if one.name.startswith(("the operand", "the output"))
            }  # fmt: skip
            assert len(tensors) == 3 and all(base >> 32 < base + size - 1 >> 32 for base, size in tensors.items())
            self.code, execution = code, launch(code, *words, **options)
            addresses.update(execution.addresses)
            return execution

        self.emulated.gpu.launch = record
        status, kept = self.result(problem, 0)
        self.emulated.gpu.launch = launch
        assert status == "ok", (problem, status, kept)
        return problem, addresses, kept

    def result(self, problem, order):
        """(ok|wrong|race|unwritten load|fault, what was said or what is compared)."""
        self.emulated.seed = order
        code, check = self._verify(problem)
        races, loads = self.emulated.races[:], self.emulated.unwritten[:]
        if code != abi.OK:
            return "fault", self.library.error()[:320]
        if (races or loads) and not order:
            return ("race", str(races[0])) if races else ("unwritten load", str(loads[0]))
        kept = (check.relative_error, check.worst, check.non_zero, check.not_finite)
        return ("wrong" if check.wrong else "ok"), kept

    def verdict(self, kind, address=None):
        """(found|missed|equivalent, how it was found or the reason), by the problems that execute an address."""
        product, real = (
            [one for one in problems if address is None or address in one[1]] for problems in (self.product, self.real)
        )
        for number, (problem, _, _) in enumerate(product):
            status, what = self.result(problem, 0)
            if status != "ok":
                return "found", f"{status} in problem {number}: {what}"
        # The problems with the fewest instructions have the same waves as the others.
        orders = [(one, order) for order in range(1, 1 + MORE_ORDERS if kind in OF_ORDER else 1) for one in product[:2]]
        for (problem, _, right), order in [*((one, 0) for one in real), *orders]:
            result = self.result(problem, order)
            if result != ("ok", right):
                return "missed", f"{result} and not {right} for {problem}, order {order}"
        return "equivalent", REASONS.get(kind, OTHER_REASON)


def table(rows):
    """Changes by kind, as a table in Markdown."""
    counts = defaultdict(Counter)
    for row in rows:
        counts[row["kind"]].update(made=1, **{row["verdict"]: 1})
        counts["all"].update(made=1, **{row["verdict"]: 1})
    columns = ("made", "found", "equivalent", "missed")
    lines = [f"|kind|{'|'.join(columns)}|", "|---|" + "--:|" * len(columns)]
    return [*lines, *(f"|{kind}|{'|'.join(str(own[name]) for name in columns)}|" for kind, own in counts.items())]


def main():
    driver, module, count, *names = sys.argv[1:]
    library = abi.DriverLibrary(driver)
    emulated = EmulatedDriver(library.handle)
    launch = emulated.gpu.launch
    emulated.gpu.launch = lambda *words, **options: launch(*words, **options, most_instructions=MOST_INSTRUCTIONS)
    library.load_module(module)
    rows = []

    def tell(**row):
        rows.append(row)
        print(json.dumps(row), flush=True)

    for name in names:
        runs = Runs(library, emulated, name)
        own = emulated.gpu.launch
        deep = next((problem for problem, *_ in runs.product[::-1] if problem[1] > 1), runs.product[-1][0])
        # All at once: each changes the launch as it is now.
        for what, spoilt in list(argument_mutants(emulated, deep)):
            emulated.gpu.launch = spoilt
            verdict, how = runs.verdict("argument")
            tell(kernel=name, kind="argument", what=what, verdict=verdict, how=how)
        emulated.gpu.launch = own
        code = runs.code
        (bundle,) = (bundle for bundle, one in emulated.code_objects.items() if one is code)
        kinds = defaultdict(list)
        for at in sorted(set().union(*(addresses for _, addresses, _ in (*runs.real, *runs.product)))):
            inst = encoded(code.image[at : at + 16], code.arch)
            for kind, content in mutants(inst):
                kinds[kind].append((at, inst, content))
        for kind, choices in kinds.items():
            for at, inst, content in random.Random(f"{name} {kind}").sample(choices, min(int(count), len(choices))):
                image = code.image[:at] + content + code.image[at + len(content) :]
                emulated.code_objects[bundle] = replace(code, image=image)
                verdict, how = runs.verdict(kind, at)
                emulated.gpu._loaded.clear()
                instance = next(
                    (one for one, own in code.kernels.items() if own.entry <= at < own.entry + own.code_bytes), ""
                )
                tell(kernel=name, kind=kind, at=hex(at), what=f"{inst.op.name} of: {instance_text(instance)}",
                     verdict=verdict, how=how)  # fmt: skip
        emulated.code_objects[bundle] = code
    print("\n".join(table(rows)))


if __name__ == "__main__":
    try:
        main()
    except EmulationFault as fault:
        raise SystemExit(str(fault)) from fault
