"""AMD's pseudocode of instructions, as tinygrad carries it, run for one lane: the measure of the emulated opcodes.

Whole numbers are Python's, without a limit, until they are viewed or stored as a type; floats are numpy's.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
from tinygrad.runtime.autogen.amd.cdna.str_pcode import PCODE

TOKEN = re.compile(
    r"\s*(?:(?P<cast>\d+'[UIFB]\()|(?P<floating>\d+'-?\d+\.\d+)|(?P<sized>\d+'(?:0x[0-9a-f]+|\d+)[UI]?)|(?P<float>\d+\.\d+F?)"
    r"|(?P<int>0x[0-9a-fA-F]+|\d+)(?:ULL|LL|U)?|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<op>\*\*|<<|>>|<=|>=|==|!=|<>|&&|\|\||[-+*/&|^~!<>?:(){}\[\],.]))"
)
BINARY = [
    ["||"],
    ["&&"],
    ["|"],
    ["^"],
    ["&"],
    ["==", "!=", "<>"],
    ["<", "<=", ">", ">="],
    ["<<", ">>"],
    ["+", "-"],
    ["*", "/"],
    ["**"],
]
FLOATS = {"f16": (16, np.float16), "f32": (32, np.float32), "f64": (64, np.float64)}


def bits_of(value, type_):
    """The bits that a value of a type is stored as."""
    if type_ in FLOATS:
        bits, kind = FLOATS[type_]
        return int(np.array(value, kind).view(f"u{bits // 8}"))
    return int(value) & (1 << int(type_[1:])) - 1


def view(bits, type_):
    """Bits as a type."""
    if isinstance(bits, np.floating):
        bits = bits_of(bits, f"f{bits.itemsize * 8}")
    if type_ == "bf16":
        return bits & 0xFFFF
    if type_ in FLOATS:
        size, kind = FLOATS[type_]
        return np.array(bits & (1 << size) - 1, f"u{size // 8}").view(kind)[()]
    size = int(type_[1:])
    bits &= (1 << size) - 1
    return bits - (1 << size) if type_[0] == "i" and bits >> size - 1 else bits


def _near(value, type_):
    return FLOATS[type_][1](value)


def _integer(low, high):
    def convert(value):
        return 0 if np.isnan(value) else int(min(max(np.trunc(np.float64(value)), low), high))

    return convert


def _bf16(value):
    bits = bits_of(value, "f32")
    if np.isnan(value):
        return bits >> 16 | 0x40
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16


def _toward_zero(value):
    near = np.float16(value)
    return np.nextafter(near, np.float16(0)) if abs(np.float64(near)) > abs(np.float64(value)) else near


DIGITS = {np.float16: (11, -24, 16), np.float32: (24, -149, 128), np.float64: (53, -1074, 1024)}
"""Of a type of float: digits, exponent of the smallest number, and of the first power of two that is too large."""


def nearest(exact, kind):
    """A fraction as a float, by whole numbers alone: to the nearest, ties to even."""
    digits, least, most = DIGITS[kind]
    if not exact:
        return kind(0)
    size = abs(exact)
    power = size.numerator.bit_length() - size.denominator.bit_length()
    power -= size < Fraction(2) ** power
    unit = max(power - digits + 1, least)
    count = round(size / Fraction(2) ** unit)
    result = kind(np.inf) if count >= 2 ** (most - unit) else kind(math.ldexp(count, unit))
    return -result if exact < 0 else result


def fma(a, b, c):
    """The product and sum of floats of one type, rounded once."""
    kind = type(a)
    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
        # What is not finite needs no digits, and an exact product of numbers is a number.
        with np.errstate(invalid="ignore"):
            return c if np.isfinite(a) and np.isfinite(b) else a * b + c
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    # A zero has the sign that plain arithmetic gives it: of a product of the same type, which is then a zero or -c.
    return nearest(exact, kind) if exact else a * b + c


def _exponent(value):
    bits, kind = bits_of(value, f"f{value.itemsize * 8}"), value.itemsize * 8
    digits = {16: 10, 32: 23, 64: 52}[kind]
    return bits >> digits & (1 << kind - 1 - digits) - 1


def _frexp_exponent(value):
    """The exponent that belongs to the mantissa of 0.5 and more; the text's formula forgets denormals and 0."""
    return int(np.frexp(value)[1]) - 1


def _signals(value):
    digits = {2: 10, 4: 23, 8: 52}[value.itemsize]
    return bool(np.isnan(value)) and not bits_of(value, f"f{value.itemsize * 8}") >> digits - 1 & 1


def _quiet(value):
    digits, type_ = {2: 10, 4: 23, 8: 52}[value.itemsize], f"f{value.itemsize * 8}"
    return view(bits_of(value, type_) | 1 << digits - 1, type_)


def _of_opcode(name):
    """The function that the text of another opcode is."""

    def compute(*values):
        type_ = name.rpartition("_")[2]
        (opcode, *_) = (key for key in PCODE if re.sub("_E(32|64)$", "", key.name) == name.upper())
        names = run(opcode, **{f"S{i}": bits_of(value, type_) for i, value in enumerate(values)}, D0=0)
        return view(names["D0"], type_)

    return compute


FUNCTIONS = {
    "fma": fma, "f32_to_f64": np.float64, "f64_to_f32": np.float32,
    "isNAN": np.isnan, "isSignalNAN": _signals, "isQuietNAN": lambda v: np.isnan(v) and not _signals(v),
    "cvtToQuietNAN": _quiet, "exponent": _exponent, "frexp_exponent": _frexp_exponent,
    "sign": lambda v: int(np.signbit(v)),
    "mantissa": lambda v: np.frexp(v)[0], "abs": abs,
    "isZERO": lambda v, sign: v == 0 and np.signbit(v) == sign, "ldexp": np.ldexp,
    "sqrt": np.sqrt, "pow": lambda a, b: a**b, "log2": np.log2, "trunc": np.trunc,
    "floor": np.floor, "fract": lambda v: v - np.floor(v),
    "isEven": lambda v: np.fmod(v, 2) == 0, "u32_to_f32": np.float32, "i32_to_f32": np.float32,
    "u32_to_f64": np.float64, "i32_to_f64": np.float64, "u16_to_f16": np.float16, "i16_to_f16": np.float16,
    "f32_to_f16": np.float16, "f16_to_f32": np.float32, "f32_to_bf16": _bf16, "signext": lambda v: v,
    "i32_to_i16": _integer(-(2**15), 2**15 - 1), "u32_to_u16": _integer(0, 2**16 - 1),
    **{f"f{size}_to_{kind}{bits}": _integer(-(2 ** (bits - 1)) * (kind == "i"), 2 ** (bits - (kind == "i")) - 1)
       for size in (16, 32, 64) for kind in "ui" for bits in (16, 32)},
    **{f"{kind}{bits}_to_{kind}32": int for kind in "ui" for bits in (4, 8, 16)},
    "signext_from_bit": lambda v, n: view(v, f"i{n}") if n else 0,
    **{f"v_{what}{count}_{kind}{bits}": {"min": min, "max": max}[what]
       for what in ("min", "max") for count in ("", "3") for kind in "ui" for bits in (16, 32)},
    **{f"v_{what}{count}_f{bits}": _of_opcode(f"v_{what}{count}_f{bits}")
       for what in ("min", "max") for count in ("", "3") for bits in (16, 32)},
}  # fmt: skip


class Expression:
    """A parser that computes as it reads; ``names`` are the registers and variables."""

    def __init__(self, text, names):
        self.tokens, self.names, at = [], names, 0
        while at < len(text.rstrip()):
            match = TOKEN.match(text, at)
            if not match:
                raise SyntaxError(text[at:])
            self.tokens.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()
        self.place = 0

    def peek(self):
        return self.tokens[self.place][1] if self.place < len(self.tokens) else None

    def take(self, expected=None):
        kind, text = self.tokens[self.place]
        assert expected is None or text == expected, (expected, text)
        self.place += 1
        return kind, text

    def value(self):
        condition = self.binary(0)
        if self.peek() != "?":
            return condition
        self.take("?")
        yes = self.value()
        self.take(":")
        no = self.value()
        return yes if condition else no

    def binary(self, level):
        if level == len(BINARY):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in BINARY[level]:
            left = compute(self.take()[1], left, self.binary(level + 1))
        return left

    def unary(self):
        if self.peek() in ("-", "~", "!", "+"):
            sign, value = self.take()[1], self.unary()
            return {"-": lambda: -value, "~": lambda: ~int(value), "!": lambda: not value, "+": lambda: value}[sign]()
        return self.postfix(self.primary())

    def primary(self):
        kind, text = self.take()
        if kind == "cast":
            size, letter = text[:-1].split("'")
            value = self.value()
            self.take(")")
            if letter == "F":
                return _near(value, f"f{size}")
            return view(int(value), f"{'i' if letter == 'I' else 'u'}{size}")
        if kind == "floating":
            size, number = text.split("'")
            return FLOATS[f"f{size}"][1](number)
        if kind == "sized":
            return int(text.split("'")[1].rstrip("UI"), 0)
        if kind == "float":
            return np.float32(text[:-1]) if text.endswith("F") else np.float64(text)
        if kind == "int":
            return int(text, 0)
        if text == "(":
            value = self.value()
            self.take(")")
            return value
        if text == "{":
            return self.joined()
        if self.peek() == "(":
            return self.call(text)
        return np.float64(np.inf) if text == "INF" else self.names[text]

    def call(self, name):
        self.take("(")
        values = [self.value()]
        while self.peek() == ",":
            self.take()
            values.append(self.value())
        self.take(")")
        return FUNCTIONS[name](*values)

    def joined(self):
        """``{ a, b }``: b in the lower bits; the parts are words here, or halves where a type says so."""
        parts = []
        while True:
            begin = self.place
            value = self.value()
            written = "".join(text for _, text in self.tokens[begin : self.place])
            size = re.findall(r"\.[ub](\d+)$", written) or [str(_slice_bits(written))]
            parts.append((value, int(size[0])))
            if self.take()[1] == "}":
                break
        result = 0
        for value, size in parts:
            result = result << size | value & (1 << size) - 1
        return result

    def postfix(self, value):
        while self.peek() in (".", "["):
            if self.take()[1] == ".":
                value = view(value, self.take()[1])
                continue
            high = low = int(self.value())
            if self.peek() == ":":
                self.take()
                low = int(self.value())
            self.take("]")
            value = cut(
                bits_of(value, f"f{value.itemsize * 8}") if isinstance(value, np.floating) else value, high, low
            )
        return value


def _slice_bits(text):
    high, low = re.findall(r"\[(\d+):(\d+)\]$", text)[0]
    return int(high) - int(low) + 1


def cut(value, high, low):
    if low > high:
        return int(f"{value & (1 << low + 1) - 1:0{low + 1}b}"[::-1], 2)
    return value >> low & (1 << high - low + 1) - 1


def compute(sign, a, b):
    if sign in ("&&", "||"):
        return bool(a and b) if sign == "&&" else bool(a or b)
    return {
        "|": lambda: a | b, "^": lambda: a ^ b, "&": lambda: a & b, "==": lambda: a == b, "!=": lambda: a != b,
            "<>": lambda: a < b or a > b, "<": lambda: a < b, "<=": lambda: a <= b, ">": lambda: a > b,
            ">=": lambda: a >= b, "<<": lambda: a << b, ">>": lambda: a >> b, "+": lambda: a + b, "-": lambda: a - b,
            "*": lambda: a * b, "/": lambda: a / b, "**": lambda: np.float64(a) ** np.float64(b),
        }[sign]()  # fmt: skip


TARGET = re.compile(r"(\w+)(?:\.(\w+))?(?:\[(.+)\])?(?:\.(\w+))?$")


class Machine:
    """Runs one instruction's text on registers: whole numbers by name, changed in place."""

    def __init__(self, text, names):
        self.lines = [line.split("//")[0].strip().rstrip(";").strip() for line in text.splitlines()]
        # A cast to double would make a signalling NaN a quiet one. The mode is that of IEEE, as HIP sets it.
        for old, new in (
            (r"64'F\((\w+\.f\d+)\)", r"\1"), (r"(S\d\.f\d+) == \+0\.0", r"isZERO(\1, 0)"),
            (r"(S\d\.f\d+) == -0\.0", r"isZERO(\1, 1)"), (r"WAVE_MODE\.IEEE", "1"), (r"INF\.f\d+", "INF"),
            (r"exponent\((\S+)\) - (1023|127|15) \+ 1", r"frexp_exponent(\1) + 1"),
        ):  # fmt: skip
            self.lines = [re.sub(old, new, line) for line in self.lines if line]
        self.names = names

    def run(self):
        self.block(0, True)
        return self.names

    def evaluate(self, text):
        reader = Expression(text, self.names)
        value = reader.value()
        assert reader.place == len(reader.tokens), text
        return value

    def block(self, at, active):
        """Run lines from ``at`` until a block's end; the line that ends it, and whether a loop was left."""
        while at < len(self.lines):
            line = self.lines[at]
            if line.startswith(("elsif", "else", "endif", "endfor")):
                return at, False
            if line.startswith("if "):
                at, left = self.choice(at, active)
                if left:
                    return at, True
            elif line.startswith("for "):
                at = self.loop(at, active)
            elif line == "break":
                if active:
                    return at, True
            elif active:
                self.statement(line)
            at += 1
        return at, False

    def choice(self, at, active):
        done = False
        left_loop = False
        while True:
            line = self.lines[at]
            if line == "endif":
                return at, left_loop
            chosen = (
                active
                and not done
                and not left_loop
                and (line == "else" or bool(self.evaluate(line.split(" ", 1)[1].removesuffix("then"))))
            )
            done |= chosen
            begin = at + 1
            at, left = self.block(begin, chosen)
            if left:
                left_loop = True
                at = self.after(begin)

    def after(self, at):
        depth = 0
        while not (depth == 0 and self.lines[at].startswith(("elsif", "else", "endif"))):
            depth += self.lines[at].startswith("if ") - (self.lines[at] == "endif")
            at += 1
        return at

    def loop(self, at, active):
        name, low, high = re.match(r"for (\w+) in (\d+) : (\d+) do", self.lines[at]).groups()
        end = at
        while self.lines[end] != "endfor":
            end += 1
        if active:
            for number in range(int(low), int(high) + 1):
                self.names[name] = number
                if self.block(at + 1, True)[1]:
                    break
        return end

    def statement(self, line):
        if line.startswith("declare") or "ROUND_MODE" in line:
            return
        for sign in ("+=", "-="):
            if sign in line:
                target, text = line.split(sign)
                line = f"{target}= {target} {sign[0]} ({text})"
        target, text = (part.strip() for part in line.split("=", 1))
        if target.startswith("{"):
            parts = re.findall(r"(\w+)\.[ui](\d+)", target)
            value = int(self.evaluate(text))
            for name, size in reversed(parts):
                self.names[name] = value & (1 << int(size)) - 1
                value >>= int(size)
            return
        name, type_, slice_, after = TARGET.match(target).groups()
        value, type_ = self.evaluate(text), after or type_
        if slice_ is None:
            self.names[name] = (
                value if type_ is None or (type_[0] == "b" and name.startswith("tmp")) else bits_of(value, type_)
            )
            return
        # A slice within the index, such as [S0.u32[4 : 0]], is no range.
        parts = [slice_] if "[" in slice_ else slice_.split(" : ")
        ends = [int(self.evaluate(part)) for part in parts]
        high, low = ends[0], ends[-1]
        bits = bits_of(value, type_ if type_ in FLOATS else f"u{high - low + 1}")
        mask = (1 << high - low + 1) - 1
        self.names[name] = self.names.get(name, 0) & ~(mask << low) | (bits & mask) << low


def run(opcode, **registers):
    """Registers after an opcode of ``PCODE``."""
    with np.errstate(all="ignore"):
        return Machine(PCODE[opcode], dict(registers)).run()
