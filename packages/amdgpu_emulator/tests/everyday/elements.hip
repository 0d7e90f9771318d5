// SPDX-License-Identifier: MIT
// Everyday kernels: element by element.
#include <hip/hip_bf16.h>
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>

#define EACH(i, n) const int i = blockIdx.x * blockDim.x + threadIdx.x; if(i < n)
#define MAP1(name, T, expression) \
    extern "C" __global__ void name(T* out, const T* in, int n) { EACH(i, n) { const T x = in[i]; out[i] = expression; } }
#define MAP2(name, T, expression) \
    extern "C" __global__ void name(T* out, const T* a, const T* b, int n) \
    { EACH(i, n) { const T x = a[i], y = b[i]; out[i] = expression; } }

MAP1(negate_f32, float, -x)
MAP2(divide_f32, float, x / y)
MAP2(divide_f64, double, x / y)
MAP2(divide_i32, int, x / y)
MAP2(remainder_u32, unsigned, x % y)
MAP2(divide_i64, long long, x / y)
MAP2(multiply_i64, long long, x * y)
MAP1(exp_f32, float, expf(x))
MAP1(log_f32, float, logf(x))
MAP2(pow_f32, float, powf(x, y))
MAP1(sin_f32, float, sinf(x))
MAP1(cos_f64, double, cos(x))
MAP1(exp_f64, double, exp(x))
MAP1(tanh_f32, float, tanhf(x))
MAP1(erf_f32, float, erff(x))
MAP1(sqrt_f32, float, sqrtf(x))
MAP1(sqrt_f64, double, sqrt(x))
MAP1(rsqrt_f32, float, rsqrtf(x))
MAP1(gelu_f32, float, 0.5f * x * (1.0f + erff(x * 0.70710678f)))
MAP1(silu_f32, float, x / (1.0f + __expf(-x)))
MAP2(fmod_f32, float, fmodf(x, y))
MAP2(atan2_f32, float, atan2f(x, y))
MAP2(hypot_f64, double, hypot(x, y))
MAP1(floor_f64, double, floor(x) + rint(x * 0.5) + trunc(x * 3) - ceil(x))
MAP1(round_f32, float, roundf(x) + rintf(x) + truncf(x))
MAP2(minmax_f32, float, fminf(x, y) * 3 + fmaxf(x, 1.0f))
MAP1(clamp_f32, float, fminf(fmaxf(x, -1.0f), 1.0f))
MAP2(median_f32, float, fmaxf(fminf(x, y), fminf(fmaxf(x, y), 0.5f)))
MAP2(minmax_f64, double, fmin(x, y) - fmax(x, 0.25))

extern "C" __global__ void classes_f32(int* out, const float* in, int n)
{
    EACH(i, n)
    {
        const float x = in[i];
        out[i] = isnan(x) + 2 * isinf(x) + 4 * isfinite(x) + 8 * isnormal(x) + 16 * signbit(x) + 32 * ilogbf(x == 0 ? 1.0f : x);
    }
}

extern "C" __global__ void frexp_ldexp(float* out, const float* in, double* wide, int n)
{
    EACH(i, n)
    {
        int e, f;
        const float m  = frexpf(in[i], &e);
        const double d = frexp((double)in[i] * 1e-40, &f);
        out[i]  = ldexpf(m, e % 7);
        wide[i] = ldexp(d, f % 50);
    }
}

extern "C" __global__ void axpy_f16(__half* y, const __half* x, float a, int n)
{
    EACH(i, n) y[i] = __hfma(__float2half(a), x[i], y[i]);
}

extern "C" __global__ void axpy_half2(__half2* y, const __half2* x, float a, int n)
{
    EACH(i, n) y[i] = __hfma2(__float2half2_rn(a), x[i], __hmul2(y[i], __hneg2(x[i])));
}

extern "C" __global__ void math_f16(__half* out, const __half* in, int n)
{
    EACH(i, n)
    {
        const __half x = in[i];
        out[i] = __hadd(__hdiv(hsqrt(__habs(x)), __hadd(__habs(x), __float2half(1.0f))), __hsub(hfloor(x), __hmax(x, __float2half(0.f))));
    }
}

extern "C" __global__ void mixed_f16(float* out, const __half* a, const __half* b, int n)
{
    EACH(i, n) out[i] = (float)a[i] * (float)b[i] + out[i];
}

extern "C" __global__ void convert_bf16(__hip_bfloat16* out, const float* in, float* back, int n)
{
    EACH(i, n)
    {
        out[i]  = __float2bfloat16(in[i] * 1.5f);
        back[i] = __bfloat162float(out[i]);
    }
}

extern "C" __global__ void convert_integers(double* out, const float* in, const long long* wide, int n)
{
    EACH(i, n)
    {
        const float x = in[i];
        out[4 * i]     = (double)(long long)(x * 1e6f) + (double)(unsigned)fabsf(x);
        out[4 * i + 1] = (double)wide[i];
        out[4 * i + 2] = (double)(float)wide[i] + (int)((double)x * 3);
        out[4 * i + 3] = (double)(signed char)(int)x + (double)(short)wide[i] + (float)(unsigned long long)wide[i];
    }
}

extern "C" __global__ void bits_u64(unsigned long long* out, const unsigned long long* in, int n)
{
    EACH(i, n)
    {
        const unsigned long long x = in[i];
        out[i] = __popcll(x) + ((unsigned long long)__clzll(x) << 8) + ((unsigned long long)__ffsll(x) << 16) + (__brevll(x) & ~0xffffffull)
                 + (unsigned)__clz((int)x) + __mul24((int)x, (int)(x >> 32)) + __umulhi((unsigned)x, 77u);
    }
}

extern "C" __global__ void rotate_hash(unsigned* out, const unsigned* in, int n)
{
    EACH(i, n)
    {
        unsigned h = in[i];
        for(int k = 0; k < 5; ++k) { h ^= h >> 16; h *= 0x85ebca6bu; h = (h << 13) | (h >> 19); h += k; }
        out[i] = h;
    }
}

extern "C" __global__ void bytes_u8(unsigned char* out, const unsigned char* in, const signed char* more, int n)
{
    EACH(i, n)
    {
        const int v = (in[i] * 3 + more[i]) >> 1;
        out[i]      = v < 0 ? 0 : v > 255 ? 255 : v;
    }
}

extern "C" __global__ void shorts_i16(short* out, const short* a, const unsigned short* b, int n)
{
    EACH(i, n)
    {
        const short x = a[i], y = (short)(b[i] >> 3);
        out[i]        = (x < y ? x : y) + (short)(x * y) - (short)(x >> 2);
    }
}

extern "C" __global__ void short2_simd(short2* out, const short2* a, const short2* b, int n)
{
    EACH(i, n)
    {
        typedef short s2 __attribute__((ext_vector_type(2)));
        const s2 x = {a[i].x, a[i].y}, y = {b[i].x, b[i].y};
        const s2 r = __builtin_elementwise_max(x, y) - __builtin_elementwise_min(x, (s2)(y * x)) + (x >> (s2){1, 2});
        out[i]     = make_short2(r.x, r.y);
    }
}

__device__ __noinline__ float helper(float x, int depth) { return depth <= 0 ? x : helper(x * 0.5f + 1.0f, depth - 1) + x; }
extern "C" __global__ void calls_recursive(float* out, const float* in, int n)
{
    EACH(i, n) out[i] = helper(in[i], i % 5);
}

__device__ __noinline__ float twice(float x) { return x * 2; }
__device__ __noinline__ float square(float x) { return x * x; }
extern "C" __global__ void calls_pointer(float* out, const float* in, int n)
{
    float (*f)(float) = blockIdx.x % 2 ? twice : square;
    EACH(i, n) out[i] = f(in[i]) + twice(in[i]);
}

extern "C" __global__ void switch_cases(int* out, const int* in, int n)
{
    EACH(i, n)
    {
        int v = in[i];
        switch(v % 7)
        {
        case 0: v = v * 3 + 1; break;
        case 1: v = v << 2; break;
        case 2: v = ~v; break;
        case 3: v = v / 5; break;
        case 4: v = __popc(v); break;
        case 5: v = v ^ 0x55; break;
        default: v = -v;
        }
        out[i] = v;
    }
}

extern "C" __global__ void local_array(int* out, const int* in, int n)
{
    EACH(i, n)
    {
        int kept[16];
        for(int k = 0; k < 16; ++k) kept[(k * 7 + in[i]) & 15] = in[i] + k;
        int sum = 0;
        for(int k = 0; k < 16; ++k) sum = sum * 3 + kept[(k + in[n - 1 - i]) & 15];
        out[i] = sum;
    }
}

struct Particle { float3 at, speed; int kind; };
extern "C" __global__ void structs(Particle* all, float dt, int n)
{
    EACH(i, n)
    {
        Particle p = all[i];
        p.at.x += dt * p.speed.x; p.at.y += dt * p.speed.y; p.at.z += dt * p.speed.z;
        if(p.at.x > 1) { p.speed.x = -p.speed.x; p.kind += 1; }
        all[i] = p;
    }
}

extern "C" __global__ void mandelbrot(int* out, int width, int height)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if(x >= width || y >= height) return;
    const float cr = -2.f + 3.f * x / width, ci = -1.f + 2.f * y / height;
    float a = 0, b = 0;
    int steps = 0;
    while(a * a + b * b < 4 && steps < 30) { const float t = a * a - b * b + cr; b = 2 * a * b + ci; a = t; ++steps; }
    out[y * width + x] = steps;
}
