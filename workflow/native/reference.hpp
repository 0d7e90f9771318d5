// SPDX-License-Identifier: MIT
// What the device computes besides the kernels under test: operands from a seed, the reference result, the comparison.
// Each is a body for one index, so that it runs on any backend.
#pragma once

#include "launcher.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>

namespace tileseer {

// Elements as bits; conversion by arithmetic, the same on every compiler.
struct Fp16
{
    using Bits = std::uint16_t;
    // Half the distance of neighbouring numbers at 1.
    static constexpr double half_ulp = 1.0 / 2048;

    TILESEER_DEVICE static float to_float(Bits bits)
    {
        const std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7fffu) << 13;
        const std::uint32_t sign      = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
        const bool finite             = (bits & 0x7c00u) != 0x7c00u;
        std::uint32_t pattern         = magnitude | 0x7f800000u;
        if(finite)
        {
            float scaled;
            memcpy(&scaled, &magnitude, sizeof scaled);
            scaled *= 5.192296858534828e33f; // 2^112: the difference of the exponents' biases
            memcpy(&pattern, &scaled, sizeof pattern);
        }
        pattern |= sign;
        float value;
        memcpy(&value, &pattern, sizeof value);
        return value;
    }

    // Cuts the mantissa; what is too small becomes zero. For |value| <= 1.
    TILESEER_DEVICE static Bits from_float(float value)
    {
        std::uint32_t pattern;
        memcpy(&pattern, &value, sizeof pattern);
        const std::uint32_t sign     = (pattern >> 16) & 0x8000u;
        const std::uint32_t exponent = (pattern >> 23) & 0xffu;
        return static_cast<Bits>(exponent < 113 ? sign : sign | ((exponent - 112) << 10) | ((pattern >> 13) & 0x3ffu));
    }
};

struct Bf16
{
    using Bits                       = std::uint16_t;
    static constexpr double half_ulp = 1.0 / 256;

    TILESEER_DEVICE static float to_float(Bits bits)
    {
        const std::uint32_t pattern = static_cast<std::uint32_t>(bits) << 16;
        float value;
        memcpy(&value, &pattern, sizeof value);
        return value;
    }

    TILESEER_DEVICE static Bits from_float(float value)
    {
        std::uint32_t pattern;
        memcpy(&pattern, &value, sizeof pattern);
        return static_cast<Bits>(pattern >> 16);
    }
};

struct Fp32
{
    using Bits                       = float;
    static constexpr double half_ulp = 1.0 / 16777216;

    TILESEER_DEVICE static float to_float(Bits value) { return value; }
    TILESEER_DEVICE static Bits from_float(float value) { return value; }
};

// Uniform in (-1, 1), all mantissa bits random: what a kernel draws in power depends on its data.
template <typename T>
struct Generate
{
    typename T::Bits* to;
    std::uint64_t seed;

    TILESEER_DEVICE void operator()(std::int64_t i) const { to[i] = element(i); }

    TILESEER_DEVICE typename T::Bits element(std::int64_t i) const
    {
        // The finalizer of SplitMix64 (Steele et al. 2014).
        std::uint64_t bits = seed + 0x9e3779b97f4a7c15ull * static_cast<std::uint64_t>(i + 1);
        bits               = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ull;
        bits               = (bits ^ (bits >> 27)) * 0x94d049bb133111ebull;
        bits ^= bits >> 31;
        const auto whole = static_cast<std::int64_t>(bits >> 39) - (std::int64_t{1} << 24);
        return T::from_float((static_cast<float>(whole) + 0.5f) / 16777216.0f);
    }
};

// Strand i looks at the elements i, i + strands, ... of a generated operand: the first that has changed, or `count`.
template <typename T>
struct FirstChanged
{
    Generate<T> generated;
    std::int64_t count;
    std::int64_t strands;
    std::int64_t* to;

    TILESEER_DEVICE void operator()(std::int64_t strand) const
    {
        std::int64_t i = strand;
        while(i < count && generated.to[i] == generated.element(i))
        {
            i += strands;
        }
        to[strand] = i < count ? i : count;
    }
};

// A convolution with its output extents; 64 bits wherever elements are counted.
struct Shape
{
    std::int64_t N, G, C, K; // C and K of one group
    std::int64_t in[3], filter[3], out[3], stride[3], pad[3], dilation[3];

    explicit Shape(const ConvProblemC& p)
        : N(p.N), G(p.G), C(p.C / p.G), K(p.K / p.G), in{p.input_d, p.input_h, p.input_w},
          filter{p.filter_z, p.filter_y, p.filter_x}, out{output_d(p), output_h(p), output_w(p)},
          stride{p.stride_d, p.stride_h, p.stride_w}, pad{p.pad_d, p.pad_h, p.pad_w},
          dilation{p.dilation_d, p.dilation_h, p.dilation_w}
    {
    }

    std::int64_t inputs() const { return N * in[0] * in[1] * in[2] * G * C; }
    std::int64_t weights() const { return G * K * filter[0] * filter[1] * filter[2] * C; }
    std::int64_t outputs() const { return N * out[0] * out[1] * out[2] * G * K; }

    TILESEER_DEVICE std::int64_t input_at(std::int64_t n, std::int64_t d, std::int64_t h, std::int64_t w, std::int64_t g) const
    {
        return ((((n * in[0] + d) * in[1] + h) * in[2] + w) * G + g) * C;
    }

    TILESEER_DEVICE std::int64_t output_at(std::int64_t n, std::int64_t d, std::int64_t h, std::int64_t w, std::int64_t g) const
    {
        return ((((n * out[0] + d) * out[1] + h) * out[2] + w) * G + g) * K;
    }

    TILESEER_DEVICE std::int64_t weight_at(std::int64_t g, std::int64_t k, std::int64_t z, std::int64_t y, std::int64_t x) const
    {
        return ((((g * K + k) * filter[0] + z) * filter[1] + y) * filter[2] + x) * C;
    }

    // Where filter tap t at output o reads the input; outside when not in [0, in).
    TILESEER_DEVICE std::int64_t tap(int axis, std::int64_t o, std::int64_t t) const
    {
        return o * stride[axis] - pad[axis] + t * dilation[axis];
    }
};

// The bodies below compute one element in `step` of the result: fp32 over the innermost sum, fp64 over the rest.

template <typename T>
struct ForwardReference
{
    Shape s;
    const typename T::Bits* input;
    const typename T::Bits* weight;
    float* to;
    std::int64_t step;

    TILESEER_DEVICE void operator()(std::int64_t i) const
    {
        std::int64_t at      = i * step;
        const std::int64_t k = at % s.K, g = (at /= s.K) % s.G, w = (at /= s.G) % s.out[2];
        const std::int64_t h = (at /= s.out[2]) % s.out[1], d = (at /= s.out[1]) % s.out[0], n = at / s.out[0];
        double sum = 0;
        for(std::int64_t z = 0; z < s.filter[0]; ++z)
        {
            const std::int64_t di = s.tap(0, d, z);
            for(std::int64_t y = 0; y < s.filter[1]; ++y)
            {
                const std::int64_t hi = s.tap(1, h, y);
                for(std::int64_t x = 0; x < s.filter[2]; ++x)
                {
                    const std::int64_t wi = s.tap(2, w, x);
                    if(di < 0 || di >= s.in[0] || hi < 0 || hi >= s.in[1] || wi < 0 || wi >= s.in[2])
                    {
                        continue;
                    }
                    const auto* a = input + s.input_at(n, di, hi, wi, g);
                    const auto* b = weight + s.weight_at(g, k, z, y, x);
                    float part    = 0;
                    for(std::int64_t c = 0; c < s.C; ++c)
                    {
                        part += T::to_float(a[c]) * T::to_float(b[c]);
                    }
                    sum += part;
                }
            }
        }
        to[i] = static_cast<float>(sum);
    }
};

template <typename T>
struct BackwardDataReference
{
    Shape s;
    const typename T::Bits* output;
    const typename T::Bits* weight;
    float* to;
    std::int64_t step;

    // The output position that reads input i through tap t, or -1.
    TILESEER_DEVICE std::int64_t reader(int axis, std::int64_t i, std::int64_t t) const
    {
        const std::int64_t from = i + s.pad[axis] - t * s.dilation[axis];
        const std::int64_t o    = from / s.stride[axis];
        return from < 0 || from % s.stride[axis] != 0 || o >= s.out[axis] ? -1 : o;
    }

    TILESEER_DEVICE void operator()(std::int64_t i) const
    {
        std::int64_t at      = i * step;
        const std::int64_t c = at % s.C, g = (at /= s.C) % s.G, w = (at /= s.G) % s.in[2];
        const std::int64_t h = (at /= s.in[2]) % s.in[1], d = (at /= s.in[1]) % s.in[0], n = at / s.in[0];
        const std::int64_t taps = s.filter[0] * s.filter[1] * s.filter[2] * s.C;
        double sum              = 0;
        for(std::int64_t z = 0; z < s.filter[0]; ++z)
        {
            const std::int64_t od = reader(0, d, z);
            for(std::int64_t y = 0; y < s.filter[1]; ++y)
            {
                const std::int64_t oh = reader(1, h, y);
                for(std::int64_t x = 0; x < s.filter[2]; ++x)
                {
                    const std::int64_t ow = reader(2, w, x);
                    if(od < 0 || oh < 0 || ow < 0)
                    {
                        continue;
                    }
                    const auto* a = output + s.output_at(n, od, oh, ow, g);
                    const auto* b = weight + s.weight_at(g, 0, z, y, x) + c;
                    float part    = 0;
                    for(std::int64_t k = 0; k < s.K; ++k)
                    {
                        part += T::to_float(a[k]) * T::to_float(b[k * taps]);
                    }
                    sum += part;
                }
            }
        }
        to[i] = static_cast<float>(sum);
    }
};

template <typename T>
struct BackwardWeightReference
{
    Shape s;
    const typename T::Bits* input;
    const typename T::Bits* output;
    float* to;
    std::int64_t step;

    TILESEER_DEVICE void operator()(std::int64_t i) const
    {
        std::int64_t at      = i * step;
        const std::int64_t c = at % s.C, x = (at /= s.C) % s.filter[2], y = (at /= s.filter[2]) % s.filter[1];
        const std::int64_t z = (at /= s.filter[1]) % s.filter[0], k = (at /= s.filter[0]) % s.K, g = at / s.K;
        double sum = 0;
        for(std::int64_t n = 0; n < s.N; ++n)
        {
            for(std::int64_t d = 0; d < s.out[0]; ++d)
            {
                const std::int64_t di = s.tap(0, d, z);
                for(std::int64_t h = 0; h < s.out[1]; ++h)
                {
                    const std::int64_t hi = s.tap(1, h, y);
                    if(di < 0 || di >= s.in[0] || hi < 0 || hi >= s.in[1])
                    {
                        continue;
                    }
                    float part = 0;
                    for(std::int64_t w = 0; w < s.out[2]; ++w)
                    {
                        const std::int64_t wi = s.tap(2, w, x);
                        if(wi >= 0 && wi < s.in[2])
                        {
                            part += T::to_float(input[s.input_at(n, di, hi, wi, g) + c]) *
                                    T::to_float(output[s.output_at(n, d, h, w, g) + k]);
                        }
                    }
                    sum += part;
                }
            }
        }
        to[i] = static_cast<float>(sum);
    }
};

// What one strand of the comparison found.
struct Partial
{
    std::int64_t not_finite;
    std::int64_t wrong;
    std::int64_t non_zero;
    double error;     // sum of squares
    double reference; // sum of squares
    double worst;
};

// How far a right result may be from the reference, as a multiple of max(|reference|, typical).
// Rounding to the output type, with room for the partial results of split-K, which some kernels add up in it; and
// accumulation in fp32 over `length` products: random rounding grows as the square root, truncation linearly.
inline double relative_tolerance(double half_ulp, double length, double split_k)
{
    const double accumulation = (8 * std::sqrt(length) + length / 4) / 16777216.0;
    return 4 * half_ulp * std::sqrt(split_k) + accumulation;
}

// Strand i looks at the elements i, i + strands, ...: as many partial results as strands, added up in order. Every
// element has to be finite, each `step`th is compared with the reference.
template <typename T>
struct Compare
{
    const typename T::Bits* result;
    const float* reference;
    std::int64_t count;
    std::int64_t strands;
    std::int64_t step;
    double tolerance; // relative
    double typical;   // root mean square of the result
    Partial* to;

    TILESEER_DEVICE void operator()(std::int64_t strand) const
    {
        Partial p{0, 0, 0, 0, 0, 0};
        for(std::int64_t i = strand; i < count; i += strands)
        {
            const double value = static_cast<double>(T::to_float(result[i]));
            // False for infinities and for what is not a number.
            if(!(value - value == 0))
            {
                ++p.not_finite;
                ++p.wrong;
                continue;
            }
            p.non_zero += value != 0;
            if(i % step != 0)
            {
                continue;
            }
            const double right = static_cast<double>(reference[i / step]);
            const double error = fabs(value - right);
            const double size  = fabs(right) > typical ? fabs(right) : typical;
            const double units = error / (tolerance * size);
            p.wrong += units > 1;
            p.error += error * error;
            p.reference += right * right;
            p.worst = units > p.worst ? units : p.worst;
        }
        to[strand] = p;
    }
};

// For the health probe: a sum whose value is known.
struct ProbeSum
{
    std::int64_t* to;
    TILESEER_DEVICE void operator()(std::int64_t i) const { to[i] = 3 * i + 1; }
};

} // namespace tileseer
