"""Instructions of AMD kernels, from the assembly that LLVM writes."""

import re
from collections import Counter
from collections.abc import Mapping

INSTRUCTION_KINDS = (
    ("mfma", re.compile(r"v_s?(mfmac?|wmmac?)_")),
    ("valu", re.compile(r"v_")),
    ("buffer_loads", re.compile(r"(buffer|global|flat)_load")),
    ("buffer_stores", re.compile(r"(buffer|global|flat)_(store|atomic)")),
    ("lds_reads", re.compile(r"ds_(read|load)")),
    ("lds_writes", re.compile(r"ds_(write|store)")),
    ("barriers", re.compile(r"s_barrier")),
)
"""Kinds of instructions: the first pattern that an opcode begins with. Loads go to registers or to LDS."""
_FUNCTION_LABEL = re.compile(r"(?!\.L)([\w.$]+):")
_INSTRUCTION_LINE = re.compile(r"\t([a-z]\w*)\b")
_FUNCTION_END = re.compile(r"\.Lfunc_end")


def listings(assembly: str) -> dict[str, Counter[str]]:
    """Return the opcodes of the functions of an assembly listing with their counts, by symbol; a loop counts once."""
    functions: dict[str, Counter[str]] = {}
    opcodes: Counter[str] = Counter()
    for line in assembly.splitlines():
        if _FUNCTION_END.match(line):
            opcodes = Counter()
        elif match := _FUNCTION_LABEL.match(line):
            opcodes = functions.setdefault(match[1], Counter())
        elif match := _INSTRUCTION_LINE.match(line):
            opcodes[match[1]] += 1
    return functions


def kind_of(opcode: str) -> str:
    """Return the kind of an instruction; empty if it is of none."""
    return next((kind for kind, pattern in INSTRUCTION_KINDS if pattern.match(opcode)), "")


def count_kinds(opcodes: Mapping[str, int]) -> dict[str, int]:
    """Count the instructions of each kind."""
    counts = dict.fromkeys((kind for kind, _ in INSTRUCTION_KINDS), 0)
    for opcode, count in opcodes.items():
        if kind := kind_of(opcode):
            counts[kind] += count
    return counts
