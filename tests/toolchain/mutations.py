"""Change one instruction of a compiled kernel at a time, and see whether its execution tells.

    mutations.py DRIVER MODULE PROBLEMS COUNT

PROBLEMS is JSON: for each kernel of the module a list of the 21 numbers of ``ConvProblemC``. For each kernel COUNT
mutations of each kind are drawn among the instructions that were executed, and all are made that change an argument:
the address of a tensor, or the distance of two groups. The answer is JSON, one line a mutation.
A mutation is found if a result is wrong, a fault, a race, or a load of what nothing has written. One that is not found
is executed in more orders of the waves: ``missed`` if that changes any result, else ``no_effect``.
"""

from __future__ import annotations

import ctypes
import json
import random
import sys
from dataclasses import replace

from tinygrad.runtime.autogen.amd.cdna import ins

from amdgpu_emulator import EmulationFault
from amdgpu_emulator.decoder import decode
from tileseer.config.benchmark import Timing
from tileseer.measure.harness import abi
from tileseer.measure.harness.emulated_driver import EmulatedDriver
from tileseer.measure.harness.supervisor import launch_options

MORE_ORDERS = 12
NOP = (0xBF800000).to_bytes(4, "little")


def changed(inst, **fields):
    """Bytes of an instruction with some fields of its encoding replaced."""
    raw = inst._raw
    for name, value in fields.items():
        field = dict(type(inst)._fields)[name]
        raw = raw & ~(field.mask << field.lo) | (value & field.mask) << field.lo
    return raw.to_bytes(inst.size(), "little")


def field(inst, name):
    place = dict(type(inst)._fields)[name]
    return inst._raw >> place.lo & place.mask


def mutants(inst):
    """Kind and new bytes of each way to spoil an instruction."""
    name, form = inst.op.name, type(inst).__name__
    if name == "S_BARRIER":
        yield "barrier removed", NOP
    if name == "S_WAITCNT":
        yield "wait removed", NOP
        vm, lgkm = inst.simm16 & 15 | inst.simm16 >> 14 << 4, inst.simm16 >> 8 & 15
        if vm < 62:
            more = (vm + 1) & 15 | (vm + 1) >> 4 << 14
            yield "wait for one less", changed(inst, simm16=inst.simm16 & ~(15 | 3 << 14) | more)
        if lgkm < 14:
            yield "wait for one less", changed(inst, simm16=inst.simm16 & ~(15 << 8) | lgkm + 1 << 8)
    if name in ("S_CBRANCH_SCC0", "S_CBRANCH_SCC1"):
        other = ins.SOPPOp.S_CBRANCH_SCC1 if name.endswith("0") else ins.SOPPOp.S_CBRANCH_SCC0
        yield "other branch taken", changed(inst, op=other.value)
    if form == "SOPC" and name.startswith("S_CMP") and 128 <= field(inst, "ssrc1") < 192:
        yield "loop bound off by one", changed(inst, ssrc1=field(inst, "ssrc1") + 1)
    if name.startswith("S_CMPK"):
        yield "loop bound off by one", changed(inst, simm16=field(inst, "simm16") + 1)
    if form == "DS" and "WRITE" in name:
        yield "store to LDS removed", NOP + NOP
    if form == "DS" and ("READ" in name or "WRITE" in name):
        yield "LDS offset", changed(inst, offset0=field(inst, "offset0") ^ 0x10)
    if name.startswith("V_MFMA"):
        yield "operands swapped", changed(inst, src0=field(inst, "src1"), src1=field(inst, "src0"))
    if form == "VOP3" and name.startswith(("V_CNDMASK", "V_PERM", "V_LSHL_ADD_U32", "V_LSHL_OR")):
        yield "operands swapped", changed(inst, src0=field(inst, "src1"), src1=field(inst, "src0"))
    if form == "MUBUF":
        yield "address off by 16", changed(inst, offset=field(inst, "offset") + 16)


def with_argument(emulated, old, new, instances=""):
    """The launch of an emulated GPU, with numbers of eight bytes replaced among the arguments of some instances."""
    launch = type(emulated.gpu).launch

    def changed_launch(code, kernel, grid, block, values, **options):
        found, replacement = (b"".join(n.to_bytes(8, "little") for n in numbers) for numbers in (old(), new()))
        values = [value.replace(found, replacement) if instances in kernel else value for value in values]
        return launch(emulated.gpu, code, kernel, grid, block, values, **options)

    return changed_launch


def argument_mutants(emulated, problem):
    """Kind, and a launch, of each way to spoil an argument."""

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

    def __init__(self, library, emulated, index, problems):
        self.library, self.emulated, self.index, self.problems = library, emulated, index, problems
        self.options = abi.ConvOptions(**launch_options(Timing()))

    def result(self, problem, order):
        self.emulated.seed = order
        check = abi.ConvCheck()
        code = self.library.verify(
            self.index, ctypes.byref(abi.ConvProblem(*problem)), ctypes.byref(self.options), ctypes.byref(check)
        )
        races, loads = self.emulated.races[:], self.emulated.unwritten[:]
        self.emulated.races.clear()
        self.emulated.unwritten.clear()
        if code != abi.OK:
            return "fault", self.library.error()[:160]
        if (races or loads) and not order:
            return ("race", str(races[0])) if races else ("unwritten load", str(loads[0]))
        kept = (check.relative_error, check.worst, check.non_zero, check.not_finite)
        return ("wrong" if check.wrong else "ok"), kept

    def verdict(self, right):
        """(found|missed|no_effect, how it was found)."""
        for number, problem in enumerate(self.problems):
            status, what = self.result(problem, 0)
            if status != "ok":
                return "found", f"{status} in problem {number}: {what}"
        for number, problem in enumerate(self.problems):
            for order in range(1, 1 + MORE_ORDERS):
                if self.result(problem, order) != ("ok", right[number]):
                    return "missed", f"differs in problem {number}, order {order}"
        return "no_effect", ""


def reached(emulated, runs):
    """The code object that a kernel is in, by its bundle, and the addresses that its problems execute."""
    places, launch = {}, emulated.gpu.launch

    def record(code, *words, **options):
        execution = launch(code, *words, **options)
        places.setdefault(code, set()).update(execution.addresses)
        return execution

    emulated.gpu.launch = record
    right = [runs.result(problem, 0) for problem in runs.problems]
    del emulated.gpu.launch
    assert {status for status, _ in right} == {"ok"}, right
    ((code, addresses),) = places.items()
    (bundle,) = (bundle for bundle, one in emulated.code_objects.items() if one is code)
    return bundle, sorted(addresses), [kept for _, kept in right]


def main():
    driver, module, problems, count = sys.argv[1:]
    library = abi.DriverLibrary(driver)
    emulated = EmulatedDriver(library.handle)
    library.load_module(module)
    for name, numbers in json.loads(problems).items():
        index = library.find_kernel(name.encode())
        if index < 0:
            raise SystemExit(library.error())
        runs = Runs(library, emulated, index, numbers)
        bundle, addresses, right = reached(emulated, runs)
        for kind, launch in argument_mutants(emulated, numbers[-1]):
            emulated.gpu.launch = launch
            verdict, how = runs.verdict(right)
            print(json.dumps({"kernel": name, "kind": kind, "verdict": verdict, "how": how}), flush=True)
        del emulated.gpu.launch
        code = emulated.code_objects[bundle]
        kinds = {}
        for at in addresses:
            inst = decode(code.image, at, code.arch)
            for kind, content in mutants(inst):
                kinds.setdefault(kind, []).append((at, inst, content))
        for kind, choices in kinds.items():
            for at, inst, content in random.Random(name).sample(choices, min(int(count), len(choices))):
                image = code.image[:at] + content + code.image[at + len(content) :]
                emulated.code_objects[bundle] = replace(code, image=image)
                verdict, how = runs.verdict(right)
                answer = {"kernel": name, "kind": kind, "at": hex(at), "instruction": inst.op.name}
                print(json.dumps(answer | {"verdict": verdict, "how": how}), flush=True)
        emulated.code_objects[bundle] = code


if __name__ == "__main__":
    try:
        main()
    except EmulationFault as fault:
        raise SystemExit(str(fault)) from fault
