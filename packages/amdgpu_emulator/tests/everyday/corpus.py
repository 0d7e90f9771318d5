"""What the everyday kernels compute, by NumPy: for each a grid, a block, arguments, and what they are afterwards."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

N = 300
"""Elements: neither whole waves nor whole workgroups."""
GRID, BLOCK = [2], [192]
VERIFY: dict[str, Callable[[], tuple]] = {}
"""By kernel: a function that returns grid, block, arguments, expected arguments by number, tolerance, and options."""


def rng(name):
    return np.random.default_rng(sum(map(ord, name)))


def floats_of(name, kind=np.float32, count=N, low=-4.0, high=4.0):
    return rng(name + str(low)).uniform(low, high, count).astype(kind)


def whole(name, kind, low, high, count=N):
    return rng(name).integers(low, high, count, kind)


def i32(value):
    return np.int32(value)


def case(name, build):
    VERIFY[name] = build


def map1(name, function, kind=np.float32, low=-4.0, high=4.0, tolerance=1e-6):
    def build():
        x = floats_of(name, kind, low=low, high=high)
        return GRID, BLOCK, [np.zeros_like(x), x, i32(N)], {0: function(x.astype(np.float64))}, tolerance, {}

    case(name, build)


def map2(name, function, kind=np.float32, low=-4.0, high=4.0, tolerance=1e-6):
    def build():
        x, y = floats_of(name, kind, low=low, high=high), floats_of(name + "y", kind, low=low, high=high)
        if np.dtype(kind).kind in "iu":
            x, y = (whole(name + s, kind, np.iinfo(kind).min // 3, np.iinfo(kind).max // 2) for s in "xy")
            y = np.where(np.arange(N) % 3 == 0, y % 1000 + 1, y + (y == 0)).astype(kind)
            return GRID, BLOCK, [np.zeros_like(x), x, y, i32(N)], {0: function(x, y)}, 0, {}
        want = function(x.astype(np.float64), y.astype(np.float64))
        return GRID, BLOCK, [np.zeros_like(x), x, y, i32(N)], {0: want}, tolerance, {}

    case(name, build)


erf = np.vectorize(math.erf)
map1("negate_f32", np.negative, tolerance=0)
map2("divide_f32", np.divide)
map2("divide_f64", np.divide, np.float64, tolerance=2e-16)
truncated = np.vectorize(lambda x, y: abs(int(x)) // abs(int(y)) * (1 if (x < 0) == (y < 0) else -1), otypes=[object])
map2("divide_i32", lambda x, y: truncated(x, y).astype(np.int32), np.int32)
map2("remainder_u32", np.remainder, np.uint32)
map2("divide_i64", lambda x, y: truncated(x, y).astype(np.int64), np.int64)
map2("multiply_i64", np.multiply, np.int64)
map1("exp_f32", np.exp)
map1("log_f32", np.log, low=0.001, high=900)
map2("pow_f32", np.power, low=0.1, high=4, tolerance=3e-6)
map1("sin_f32", np.sin, low=-100, high=100)
map1("cos_f64", np.cos, np.float64, low=-1e6, high=1e6, tolerance=1e-15)
map1("exp_f64", np.exp, np.float64, tolerance=1e-15)
map1("tanh_f32", np.tanh)
map1("erf_f32", erf)
map1("sqrt_f32", np.sqrt, low=0, high=1e6, tolerance=6e-8)
map1("sqrt_f64", np.sqrt, np.float64, low=0, high=1e6, tolerance=2e-16)
map1("rsqrt_f32", lambda x: 1 / np.sqrt(x), low=0.01)
map1("gelu_f32", lambda x: 0.5 * x * (1 + erf(x * 0.70710678)), tolerance=3e-6)
map1("silu_f32", lambda x: x / (1 + np.exp(-x)), tolerance=3e-6)
map2("fmod_f32", np.fmod, tolerance=1e-6)
map2("atan2_f32", np.arctan2)
map2("hypot_f64", np.hypot, np.float64, tolerance=1e-15)
map1("floor_f64", lambda x: np.floor(x) + np.rint(x * 0.5) + np.trunc(x * 3) - np.ceil(x), np.float64, tolerance=0)
map1("round_f32", lambda x: np.trunc(x + np.copysign(0.5, x)) + np.rint(x) + np.trunc(x), tolerance=0)
map2("minmax_f32", lambda x, y: np.minimum(x, y) * 3 + np.maximum(x, 1))
map1("clamp_f32", lambda x: np.clip(x, -1, 1), tolerance=0)
map2("median_f32", lambda x, y: np.maximum(np.minimum(x, y), np.minimum(np.maximum(x, y), 0.5)), tolerance=0)
map2("minmax_f64", lambda x, y: np.minimum(x, y) - np.maximum(x, 0.25), np.float64, tolerance=2e-16)


def classes_f32():
    x = floats_of("classes")
    x[:8] = 0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3
    kept = np.where(np.isfinite(x) & (x != 0), x, 1)
    log = np.where(x == 0, 0, np.frexp(kept)[1] - 1).astype(np.int64)
    log = np.where(np.isfinite(x), log, 2**31 - 1)
    normal = np.isfinite(x) & (np.abs(x) >= np.finfo(np.float32).tiny)
    want = np.isnan(x) + 2 * np.isinf(x) + 4 * np.isfinite(x) + 8 * normal + 16 * np.signbit(x) + 32 * log
    return GRID, BLOCK, [np.zeros(N, np.int32), x, i32(N)], {0: want.astype(np.int64).astype(np.int32)}, 0, {}


def frexp_ldexp():
    x = floats_of("frexp", low=-1e6, high=1e6)
    m, e = np.frexp(x)
    d, f = np.frexp(x.astype(np.float64) * 1e-40)
    want = {0: np.ldexp(m, np.fmod(e, 7)), 2: np.ldexp(d, np.fmod(f, 50))}
    return GRID, BLOCK, [np.zeros(N, "f4"), x, np.zeros(N), i32(N)], want, 0, {}


def axpy_f16():
    x, y, a = floats_of("ax", "f2"), floats_of("ay", "f2"), np.float32(1.75)
    want = (x.astype("f8") * 1.75 + y.astype("f8")).astype("f2")
    return GRID, BLOCK, [y, x, a, i32(N)], {0: want}, 0, {}


def axpy_half2():
    x, y, a = floats_of("hx", "f2", 2 * N), floats_of("hy", "f2", 2 * N), np.float32(0.5)
    want = (x.astype("f8") * 0.5 + (y * -x).astype("f8")).astype("f2")
    return GRID, BLOCK, [y, x, a, i32(N)], {0: want}, 0, {}


def math_f16():
    x = floats_of("m16", "f2")
    r = np.abs(x.astype("f8"))
    want = np.sqrt(r) / (r + 1) + np.floor(x) - np.maximum(x, 0).astype("f8")
    return GRID, BLOCK, [np.zeros(N, "f2"), x, i32(N)], {0: want}, 4e-3, {}


def mixed_f16():
    a, b, c = floats_of("ma", "f2"), floats_of("mb", "f2"), floats_of("mc")
    want = (a.astype("f8") * b.astype("f8") + c.astype("f8")).astype("f4")
    return GRID, BLOCK, [c, a, b, i32(N)], {0: want}, 0, {}


def to_bf16(x):
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)


def of_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def convert_bf16():
    x = floats_of("bf")
    want = to_bf16(x * np.float32(1.5))
    arguments = [np.zeros(N, np.uint16), x, np.zeros(N, "f4"), i32(N)]
    return GRID, BLOCK, arguments, {0: want, 2: of_bf16(want)}, 0, {}


def convert_integers():
    x, wide = floats_of("ci", low=-900, high=900), whole("cw", np.int64, -(2**62), 2**62)
    f, small = x.astype("f8"), wide.astype(np.float32).astype("f8")
    first = np.trunc((x * np.float32(1e6)).astype("f8")) + np.trunc(np.abs(f))
    third = small + np.trunc(f * 3)
    last = np.trunc(f).astype(np.int64).astype(np.int8).astype("f8") + wide.astype(np.int16).astype("f8")
    last = last + wide.astype(np.uint64).astype("f4")
    want = np.stack([first, wide.astype("f8"), third, last], axis=1).ravel()
    return GRID, BLOCK, [np.zeros(4 * N), x, wide, i32(N)], {0: want}, 0, {}


def bits_u64():
    x = whole("b64", np.uint64, 0, 2**64 - 1)
    want = []
    for v in x.tolist():
        low, high = v & 0xFFFFFFFF, v >> 32

        def s24(word):
            return (word & 0xFFFFFF) - ((word & 0x800000) << 1)

        reverse = int(f"{v:064b}"[::-1], 2) & ~0xFFFFFF
        total = v.bit_count() + (64 - v.bit_length() << 8) + ((v & -v).bit_length() << 16) + reverse
        product = (s24(low) * s24(high) + 2**31) % 2**32 - 2**31
        # The sum of the last three terms is made of words before it is widened where the compiler's types say so.
        want.append((total + (32 - low.bit_length()) + product + (low * 77 >> 32)) % 2**64)
    return GRID, BLOCK, [np.zeros(N, np.uint64), x, i32(N)], {0: np.array(want, np.uint64)}, 0, {}


def rotate_hash():
    x = whole("hash", np.uint32, 0, 2**32 - 1)
    h = x.copy()
    for k in range(5):
        h ^= h >> 16
        h *= np.uint32(0x85EBCA6B)
        h = (h << 13) | (h >> 19)
        h += np.uint32(k)
    return GRID, BLOCK, [np.zeros(N, np.uint32), x, i32(N)], {0: h}, 0, {}


def bytes_u8():
    a, b = whole("u8", np.uint8, 0, 255), whole("i8", np.int8, -128, 127)
    want = np.clip((a.astype(int) * 3 + b) >> 1, 0, 255).astype(np.uint8)
    return GRID, BLOCK, [np.zeros(N, np.uint8), a, b, i32(N)], {0: want}, 0, {}


def shorts_i16():
    a, b = whole("i16", np.int16, -(2**15), 2**15 - 1), whole("u16", np.uint16, 0, 2**16 - 1)
    y = (b >> 3).astype(np.int16)
    want = (np.minimum(a, y).astype(int) + (a * y) - (a >> 2)).astype(np.int16)
    return GRID, BLOCK, [np.zeros(N, np.int16), a, b, i32(N)], {0: want}, 0, {}


def short2_simd():
    a, b = (whole(s, np.int16, -(2**15), 2**15 - 1, 2 * N) for s in ("s2a", "s2b"))
    want = np.maximum(a, b) - np.minimum(a, b * a) + (a >> np.tile(np.array([1, 2], np.int16), N))
    return GRID, BLOCK, [np.zeros(2 * N, np.int16), a, b, i32(N)], {0: want}, 0, {}


def calls_recursive():
    x = floats_of("rec")

    def helper(value, depth):
        return value if depth <= 0 else helper(value * 0.5 + 1, depth - 1) + value

    want = np.array([helper(float(v), i % 5) for i, v in enumerate(x)])
    return GRID, BLOCK, [np.zeros(N, "f4"), x, i32(N)], {0: want}, 1e-6, {}


def calls_pointer():
    x = floats_of("ptr").astype("f4")
    odd = np.arange(N) // 192 % 2 == 1
    want = np.where(odd, 2 * x, x * x) + 2 * x
    return GRID, BLOCK, [np.zeros(N, "f4"), x, i32(N)], {0: want}, 1e-6, {}


def switch_cases():
    x = whole("sw", np.int32, 0, 2**20)
    cases = [lambda v: v * 3 + 1, lambda v: v << 2, lambda v: ~v, lambda v: v // 5, int.bit_count, lambda v: v ^ 0x55]
    want = [(cases[v % 7](v) if v % 7 < 6 else -v) for v in x.tolist()]
    return GRID, BLOCK, [np.zeros(N, np.int32), x, i32(N)], {0: np.array(want, np.int32)}, 0, {}


def local_array():
    x, want = whole("la", np.int32, 0, 1000), []
    for i in range(N):
        kept = [0] * 16
        for k in range(16):
            kept[(k * 7 + int(x[i])) & 15] = int(x[i]) + k
        total = 0
        for k in range(16):
            total = total * 3 + kept[(k + int(x[N - 1 - i])) & 15]
        want.append((total + 2**31) % 2**32 - 2**31)
    return GRID, BLOCK, [np.zeros(N, np.int32), x, i32(N)], {0: np.array(want, np.int32)}, 0, {}


def structs():
    all_ = np.zeros(N, [("at", "3f4"), ("speed", "3f4"), ("kind", "i4")])
    all_["at"], all_["speed"] = rng("at").random((N, 3)), rng("speed").random((N, 3))
    want, dt = all_.copy(), np.float32(0.5)
    want["at"] += dt * want["speed"]
    beyond = want["at"][:, 0] > 1
    want["speed"][beyond, 0] *= -1
    want["kind"] += beyond
    return GRID, BLOCK, [all_.view(np.uint8), dt, i32(N)], {0: want.view(np.uint8)}, 0, {}


def mandelbrot():
    width, height, want = 40, 12, []
    for y in range(height):
        for x in range(width):
            f = np.float32
            cr, ci = f(-2) + f(3) * f(x) / f(width), f(-1) + f(2) * f(y) / f(height)
            a = b = f(0)
            steps = 0
            while a * a + b * b < 4 and steps < 30:
                a, b, steps = a * a - b * b + cr, 2 * a * b + ci, steps + 1
            want.append(steps)
    # Where the last bit decides, the number of steps differs.
    return (
        [3, 2],
        [16, 8],
        [np.zeros(width * height, np.int32), i32(width), i32(height)],
        {0: np.array(want)},
        0.02,
        {"most": 3},
    )


for build in (
    classes_f32, frexp_ldexp, axpy_f16, axpy_half2, math_f16, mixed_f16, convert_bf16, convert_integers, bits_u64,
    rotate_hash, bytes_u8, shorts_i16, short2_simd, calls_recursive, calls_pointer, switch_cases, local_array, structs,
    mandelbrot,
):  # fmt: skip
    case(build.__name__, build)


def reduce(kind, threads):
    x = floats_of("red", kind, 1000)
    return [1], [threads], [np.zeros(1, kind), x, i32(1000)], {0: [x.astype("f8").sum()]}, 1e-5, {}


case("_Z10reduce_ldsIfLi256EEvPT_PKS0_i", lambda: reduce("f4", 256))
case("_Z10reduce_ldsIdLi128EEvPT_PKS0_i", lambda: reduce("f8", 128))


def reduce_wave():
    x = floats_of("rw", count=1000)
    return [1], [64], [np.zeros(1, "f4"), x, i32(1000)], {0: [x.astype("f8").sum()]}, 1e-5, {}


def reduce_wave_down():
    x = floats_of("rd", "f8", 256)
    return [1], [256], [np.zeros(4), x], {0: x.reshape(4, 64).sum(axis=1)}, 1e-12, {}


def reduce_int_max():
    x = whole("rm", np.int32, -99, 99, 128)
    waves = x.reshape(2, 64)
    want = 2 * waves.max(axis=1, keepdims=True) + np.roll(waves, 1, axis=1)
    want[:, 0] = 2 * waves.max(axis=1) + waves[:, 0]
    return [1], [128], [np.zeros(128, np.int32), x], {0: want.ravel()}, 0, {}


def scan_lds():
    x = whole("sl", np.int32, -99, 99, 256)
    return [1], [256], [np.zeros(256, np.int32), x], {0: np.cumsum(x)}, 0, {}


def scan_wave():
    x = floats_of("scan", count=128)
    return [1], [128], [np.zeros(128, "f4"), x], {0: np.cumsum(x.reshape(2, 64), axis=1).ravel()}, 1e-4, {}


def softmax_rows():
    x = floats_of("soft", count=3 * 150).reshape(3, 150)
    e = np.exp(x.astype("f8") - x.max(axis=1, keepdims=True))
    want = e / e.sum(axis=1, keepdims=True)
    return [3], [64], [np.zeros(450, "f4"), x.ravel(), i32(150)], {0: want.ravel()}, 1e-5, {}


def layer_norm():
    x, scale, shift = floats_of("ln", count=3 * 300).reshape(3, 300), floats_of("lns"), floats_of("lnb")
    f = x.astype("f8")
    want = (f - f.mean(axis=1, keepdims=True)) / np.sqrt(f.var(axis=1, keepdims=True) + 1e-5) * scale + shift
    arguments = [np.zeros(900, "f4"), x.ravel(), scale, shift, i32(300), np.float32(1e-5)]
    return [3], [256], arguments, {0: want.ravel()}, 1e-5, {}


def transpose(kind):
    x = floats_of("tr", kind, 50 * 70).reshape(50, 70)
    return [3, 2], [32, 8], [np.zeros(3500, kind), x.ravel(), i32(50), i32(70)], {0: x.T.ravel()}, 0, {}


case("_Z9transposeIfEvPT_PKS0_ii", lambda: transpose("f4"))
case("_Z9transposeI6__halfEvPT_PKS1_ii", lambda: transpose("f2"))


def histogram():
    x = whole("hist", np.uint8, 0, 60, 2000)
    want = np.bincount(x, minlength=256).astype(np.uint32)
    return [2], [256], [np.zeros(256, np.uint32), x, i32(2000)], {0: want}, 0, {}


def atomics_64():
    x = whole("a64", np.uint64, 0, 2**64 - 1)
    start = np.array([0, 0, 2**64 - 1, 0, 0, 2**64 - 1, 2**63, 0], np.uint64)
    want = start.copy()
    want[0], want[1], want[2] = x.sum(dtype=np.uint64), x.max(), x.min()
    want[3], want[4] = np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x)
    want[5], want[6] = np.bitwise_and.reduce(x | np.uint64(255)), x.view(np.int64).max().astype(np.uint64)
    return GRID, BLOCK, [start, x, i32(N)], {0: want}, 0, {}


def atomics_float():
    x = floats_of("af")
    f, d, s = np.array([0, 0, -9], "f4"), np.zeros(2), x.astype("f8").sum()
    return GRID, BLOCK, [f, d, x, i32(N)], {0: [s, s, x.max()], 1: [s, s]}, 1e-4, {}


def atomics_lds_64():
    x = whole("al", np.uint64, 0, 2**64 - 1, 128)
    total = float((x & np.uint64(1023)).sum())
    want = {0: np.array([x.sum(dtype=np.uint64), x.max()]), 1: [total]}
    return [1], [128], [np.zeros(2, np.uint64), np.zeros(1), x], want, 0, {}


def compare_and_swap():
    x = floats_of("cas", low=0, high=9)
    best = (x.view(np.uint32).astype(np.uint64) << np.uint64(32) | np.arange(N, dtype=np.uint64)).max()
    return GRID, BLOCK, [np.zeros(1, np.uint64), x, i32(N)], {0: [best]}, 0, {}


def votes():
    x = whole("votes", np.int32, 0, 95, 128)
    want = []
    for wave in x.reshape(2, 64):
        even = sum(1 << i for i, v in enumerate(wave.tolist()) if v % 2 == 0)
        want += [even + int((wave > 90).any()) + 2 + (even & (1 << i) - 1).bit_count() for i in range(64)]
    return [1], [128], [np.zeros(128, np.uint64), x], {0: np.array([v % 2**64 for v in want], np.uint64)}, 0, {}


def compact():
    x = whole("comp", np.int32, 0, 1000)
    kept = x[x % 3 == 0]
    out = np.full(N, -1, np.int32)
    return (
        GRID,
        BLOCK,
        [out, np.zeros(1, np.int32), x, i32(N)],
        {0: np.append(kept, [-1] * (N - len(kept))), 1: [len(kept)]},
        0,
        {"sorted": 0},
    )


def bitonic_sort():
    x = whole("sort", np.int32, -500, 500, 256)
    return [1], [256], [x], {0: np.sort(x)}, 0, {}


def stencil_2d():
    x = floats_of("st", count=40 * 20).reshape(20, 40)
    p = np.pad(x, 1).astype("f8")
    want = 0.5 * x + 0.125 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])
    return [3, 2], [16, 16], [np.zeros(800, "f4"), x.ravel(), i32(40), i32(20)], {0: want.ravel()}, 1e-6, {}


def specialised_waves():
    x = whole("spec", np.int32, 0, 1000, 5 * 64)
    return [1], [128], [np.zeros(64, np.int32), x, i32(5)], {0: 2 * x.reshape(5, 64).sum(axis=0)[::-1]}, 0, {}


def lds_lock():
    return [1], [256], [np.zeros(1, np.int32)], {0: [10]}, 0, {}


def generic_pointers():
    x = whole("gen", np.int32, 0, 1000, 64)
    own = np.stack([x, np.full(64, 2), np.full(64, 3), np.full(64, 4)])
    want = np.where(x % 2, 5 * x[::-1], own[x & 3, np.arange(64)])
    return [1], [64], [np.zeros(64, np.int32), x], {0: want}, 0, {}


def constants_and_globals():
    x = floats_of("const")
    want = np.convolve(x.astype("f8"), [0.1, 0.2, 0.4, 0.2, 0.1], "same")
    return GRID, BLOCK, [np.zeros(N, "f4"), x, i32(N)], {0: want}, 1e-6, {}


def indexed_registers():
    x, at, i = floats_of("indexed"), whole("at", np.int32, 0, 16), np.arange(N)
    own = x[(i[:, None] + np.arange(16)) % N]
    own[i, at[i // BLOCK[0]]] = 9
    want = own[i, at[i % BLOCK[0] // 64]] + own[i, at]
    return GRID, BLOCK, [np.zeros(N, "f4"), x, at, i32(N)], {0: want}, 0, {}


def dynamic_lds():
    x = floats_of("dyn")
    return [1], [128], [np.zeros(N, "f4"), x, i32(N)], {0: x[::-1] + np.float32(128)}, 1e-6, {"dynamic_lds": 4 * N}


def virtual_functions():
    x = floats_of("virtual", count=64)
    return [1], [64], [x], {0: np.where(np.arange(64) % 2, x * x, 3 * x)}, 0, {}


def asserts():
    x = whole("assert", np.int32, 0, 1000, 64)
    return [1], [64], [np.zeros(64, np.int32), x], {0: x + 1}, 0, {}


def gemm(kind, out, tolerance):
    m, n, k = 20, 35, 37
    if kind == "i1":
        a, b = whole("ga", np.int8, -128, 127, m * k), whole("gb", np.int8, -128, 127, k * n)
    else:
        a, b = floats_of("ga", kind, m * k), floats_of("gb", kind, k * n)
    work = np.int64 if kind == "i1" else np.float64
    want = a.reshape(m, k).astype(work) @ b.reshape(k, n).astype(work)
    return [3, 2], [16, 16], [np.zeros(m * n, out), a, b, *map(i32, (m, n, k))], {0: want.ravel()}, tolerance, {}


case("gemm_f32", lambda: gemm("f4", "f4", 1e-5))
case("gemm_f64", lambda: gemm("f8", "f8", 1e-13))
case("gemm_f16", lambda: gemm("f2", "f4", 1e-5))
case("gemm_i8", lambda: gemm("i1", "i4", 0))


def mfma(kind, out, side=16, k=16, tolerance=1e-5):
    a, b = floats_of("mfa", count=side * k).reshape(side, k), floats_of("mfb", count=k * side).reshape(k, side)
    if kind == "i1":
        a, b = (whole(s, np.int8, -128, 127, side * k) for s in ("mia", "mib"))
        a, b = a.reshape(side, k), b.reshape(k, side)
    elif kind == "bf16":
        bits = [to_bf16(x) for x in (a, b)]
        want = of_bf16(bits[0]).astype("f8") @ of_bf16(bits[1]).astype("f8")
        return [1], [64], [np.zeros(side * side, out), *(x.ravel() for x in bits)], {0: want.ravel()}, tolerance, {}
    elif kind == "fp8":
        # Numbers that both formats have.
        a, b = (np.round(x) * 0.5 for x in (a, b))
        a, b = a.astype("f4"), b.astype("f4")
    else:
        a, b = a.astype(kind), b.astype(kind)
    want = a.astype("f8") @ b.astype("f8")
    return [1], [64], [np.zeros(side * side, out), a.ravel(), b.ravel()], {0: want.ravel()}, tolerance, {}


case("mfma_f16", lambda: mfma("f2", "f4"))
case("mfma_bf16", lambda: mfma("bf16", "f4"))
case("mfma_f32", lambda: mfma("f4", "f4"))
case("mfma_f64", lambda: mfma("f8", "f8", tolerance=1e-13))
case("mfma_i8", lambda: mfma("i1", "i4", k=32, tolerance=0))
case("mfma_fp8", lambda: mfma("fp8", "f4", k=32, tolerance=0))
case("mfma_f16_32", lambda: mfma("f2", "f4", side=32))


def convert_fp8():
    x = np.round(floats_of("fp8", low=-7, high=7)) * np.float32(0.5)
    want = np.stack([x, x * 0.25, x, x * 0.25], axis=1).ravel()
    return GRID, BLOCK, [np.zeros(4 * N, "f4"), x, i32(N)], {0: want}, 0, {}


def attention():
    q, k, v = (floats_of(s, "f2", c * 64).reshape(c, 64) for s, c in (("q", 2), ("k", 9), ("v", 9)))
    s = q.astype("f8") @ k.astype("f8").T * 0.125
    e = np.exp(s - s.max(axis=1, keepdims=True))
    want = e @ v.astype("f8") / e.sum(axis=1, keepdims=True)
    arguments = [np.zeros(128, "f4"), q.ravel(), k.ravel(), v.ravel(), i32(9), np.float32(0.125)]
    return [2], [64], arguments, {0: want.ravel()}, 1e-4, {}


def gemv_half2():
    a, x = floats_of("gva", "f2", 3 * 100, -1, 1).reshape(3, 100), floats_of("gvx", "f2", 100, -1, 1)
    want = a.astype("f8") @ x.astype("f8")
    return [3], [64], [np.zeros(3, "f4"), a.ravel(), x, i32(50)], {0: want}, 2e-2, {}


def dot_products():
    a, b, f = floats_of("da", "f2", 128), floats_of("db", "f2", 128), floats_of("df", count=64)
    x, y = (whole(s, np.int8, -128, 127, 256) for s in ("dx", "dy"))
    i = whole("di", np.int32, -99, 99, 64)
    want_f = (a.astype("f8") * b.astype("f8")).reshape(64, 2).sum(axis=1) + f
    want_i = (x.astype(int) * y.astype(int)).reshape(64, 4).sum(axis=1) + i
    return [1], [64], [f, i, a, b, x.view(np.int32), y.view(np.int32)], {0: want_f, 1: want_i}, 1e-5, {}


def convolution_3x3():
    x, f = floats_of("cx", count=6 * 50).reshape(6, 50), floats_of("cf", count=9)
    p = np.pad(x, 1).astype("f8")
    want = sum(p[j : j + 6, i : i + 50] * float(f[3 * j + i]) for j in range(3) for i in range(3))
    return [1, 6], [64], [np.zeros(300, "f4"), x.ravel(), f, i32(50), i32(6)], {0: want.ravel()}, 1e-5, {}


for build in (
    reduce_wave, reduce_wave_down, reduce_int_max, scan_lds, scan_wave, softmax_rows, layer_norm, histogram, atomics_64,
    atomics_float, atomics_lds_64, compare_and_swap, votes, compact, bitonic_sort, stencil_2d, specialised_waves,
    lds_lock, generic_pointers, constants_and_globals, indexed_registers, dynamic_lds, virtual_functions, asserts,
    convert_fp8, attention, gemv_half2, dot_products, convolution_3x3,
):  # fmt: skip
    case(build.__name__, build)


def run(code, name, **options):
    """Execute a kernel of a code object; what is wrong, or nothing."""
    with np.errstate(all="ignore"):
        grid, block, arguments, want, tolerance, more = VERIFY[name]()
    options |= {key: value for key, value in more.items() if key == "dynamic_lds"}
    done = code.launch(name, grid, block, arguments, **options)
    mistakes = [str(one) for one in (*done.races, *done.unwritten)]
    for number, values in want.items():
        got, values = arguments[number], np.asarray(values)
        if more.get("sorted") == number:
            got, values = np.sort(got), np.sort(values)
        if tolerance:
            wrong = ~np.isclose(got.astype("f8"), values.astype("f8"), rtol=tolerance, atol=tolerance, equal_nan=True)
        else:
            wrong = (got != values.astype(got.dtype)) & ~(np.isnan(got * 1.0) & np.isnan(values * 1.0))
        if wrong.sum() > more.get("most", 0):
            at = int(np.flatnonzero(wrong)[0])
            mistakes.append(f"argument {number}: {wrong.sum()} wrong, {got[at]} at {at} and not {values[at]}")
    return mistakes
