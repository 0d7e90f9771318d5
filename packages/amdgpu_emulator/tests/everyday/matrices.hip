// SPDX-License-Identifier: MIT
// Everyday kernels: products of matrices, by the vector and the matrix units, and attention.
#include <hip/hip_bf16.h>
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>

template <class T, class Sum>
__device__ void product(Sum* c, const T* a, const T* b, int m, int n, int k)
{
    __shared__ T left[16][17], right[16][17];
    const int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    Sum sum = 0;
    for(int begin = 0; begin < k; begin += 16)
    {
        const int i = begin + threadIdx.x, j = begin + threadIdx.y;
        left[threadIdx.y][threadIdx.x]  = row < m && i < k ? a[row * k + i] : T(0);
        right[threadIdx.y][threadIdx.x] = column < n && j < k ? b[j * n + column] : T(0);
        __syncthreads();
        for(int l = 0; l < 16; ++l) sum += Sum(left[threadIdx.y][l]) * Sum(right[l][threadIdx.x]);
        __syncthreads();
    }
    if(row < m && column < n) c[row * n + column] = sum;
}
extern "C" __global__ void gemm_f32(float* c, const float* a, const float* b, int m, int n, int k) { product(c, a, b, m, n, k); }
extern "C" __global__ void gemm_f64(double* c, const double* a, const double* b, int m, int n, int k) { product(c, a, b, m, n, k); }
extern "C" __global__ void gemm_f16(float* c, const __half* a, const __half* b, int m, int n, int k) { product(c, a, b, m, n, k); }
extern "C" __global__ void gemm_i8(int* c, const signed char* a, const signed char* b, int m, int n, int k) { product(c, a, b, m, n, k); }

typedef float f4 __attribute__((ext_vector_type(4)));
typedef float f16x __attribute__((ext_vector_type(16)));
typedef double d4 __attribute__((ext_vector_type(4)));
typedef int i4 __attribute__((ext_vector_type(4)));
typedef _Float16 h4 __attribute__((ext_vector_type(4)));
typedef short s4 __attribute__((ext_vector_type(4)));

// One wave, 16 x 16, k of 16: lane = 16 * group + row, elements of a lane along k.
template <class C, class Product>
__device__ void tile_16(C* c, Product multiply)
{
    typedef C v4 __attribute__((ext_vector_type(4)));
    v4 sum = {0, 0, 0, 0};
    sum    = multiply(sum);
    for(int r = 0; r < 4; ++r) c[(4 * (threadIdx.x / 16) + r) * 16 + threadIdx.x % 16] = sum[r];
}
extern "C" __global__ void mfma_f16(float* c, const _Float16* a, const _Float16* b)
{
    tile_16(c, [=](f4 sum) {
        h4 x, y;
        for(int i = 0; i < 4; ++i) { x[i] = a[threadIdx.x % 16 * 16 + threadIdx.x / 16 * 4 + i]; y[i] = b[(threadIdx.x / 16 * 4 + i) * 16 + threadIdx.x % 16]; }
        return __builtin_amdgcn_mfma_f32_16x16x16f16(x, y, sum, 0, 0, 0);
    });
}
extern "C" __global__ void mfma_bf16(float* c, const short* a, const short* b)
{
    tile_16(c, [=](f4 sum) {
        s4 x, y;
        for(int i = 0; i < 4; ++i) { x[i] = a[threadIdx.x % 16 * 16 + threadIdx.x / 16 * 4 + i]; y[i] = b[(threadIdx.x / 16 * 4 + i) * 16 + threadIdx.x % 16]; }
        return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x, y, sum, 0, 0, 0);
    });
}
extern "C" __global__ void mfma_f32(float* c, const float* a, const float* b)
{
    tile_16(c, [=](f4 sum) {
        for(int k = 0; k < 16; k += 4)
            sum = __builtin_amdgcn_mfma_f32_16x16x4f32(a[threadIdx.x % 16 * 16 + k + threadIdx.x / 16], b[(k + threadIdx.x / 16) * 16 + threadIdx.x % 16], sum, 0, 0, 0);
        return sum;
    });
}
// The rows of a result in double precision lie apart: row = 4 * register + group.
extern "C" __global__ void mfma_f64(double* c, const double* a, const double* b)
{
    d4 sum = {0, 0, 0, 0};
    for(int k = 0; k < 16; k += 4)
        sum = __builtin_amdgcn_mfma_f64_16x16x4f64(a[threadIdx.x % 16 * 16 + k + threadIdx.x / 16], b[(k + threadIdx.x / 16) * 16 + threadIdx.x % 16], sum, 0, 0, 0);
    for(int r = 0; r < 4; ++r) c[(4 * r + threadIdx.x / 16) * 16 + threadIdx.x % 16] = sum[r];
}
extern "C" __global__ void mfma_i8(int* c, const signed char* a, const signed char* b)
{
#if defined(__gfx90a__)
    tile_16(c, [=](i4 sum) {
        int x = 0, y = 0;
        for(int i = 0; i < 4; ++i) { x |= (a[threadIdx.x % 16 * 32 + threadIdx.x / 16 * 4 + i] & 255) << 8 * i; y |= (b[(threadIdx.x / 16 * 4 + i) * 16 + threadIdx.x % 16] & 255) << 8 * i; }
        sum = __builtin_amdgcn_mfma_i32_16x16x16i8(x, y, sum, 0, 0, 0);
        x = y = 0;
        for(int i = 0; i < 4; ++i) { x |= (a[threadIdx.x % 16 * 32 + 16 + threadIdx.x / 16 * 4 + i] & 255) << 8 * i; y |= (b[(16 + threadIdx.x / 16 * 4 + i) * 16 + threadIdx.x % 16] & 255) << 8 * i; }
        return __builtin_amdgcn_mfma_i32_16x16x16i8(x, y, sum, 0, 0, 0);
    });
#else
    tile_16(c, [=](i4 sum) {
        long x = 0, y = 0;
        for(int i = 0; i < 8; ++i) { x |= (long)(a[threadIdx.x % 16 * 32 + threadIdx.x / 16 * 8 + i] & 255) << 8 * i; y |= (long)(b[(threadIdx.x / 16 * 8 + i) * 16 + threadIdx.x % 16] & 255) << 8 * i; }
        return __builtin_amdgcn_mfma_i32_16x16x32_i8(x, y, sum, 0, 0, 0);
    });
#endif
}
#if !defined(__gfx90a__)
extern "C" __global__ void mfma_fp8(float* c, const float* a, const float* b)
{
    tile_16(c, [=](f4 sum) {
        int x[2], y[2];
        for(int h = 0; h < 2; ++h)
        {
            const float* p = a + threadIdx.x % 16 * 32 + threadIdx.x / 16 * 8 + 4 * h;
            const float* q = b + (threadIdx.x / 16 * 8 + 4 * h) * 16 + threadIdx.x % 16;
            x[h] = __builtin_amdgcn_cvt_pk_fp8_f32(p[0], p[1], 0, false);
            x[h] = __builtin_amdgcn_cvt_pk_fp8_f32(p[2], p[3], x[h], true);
            y[h] = __builtin_amdgcn_cvt_pk_fp8_f32(q[0], q[16], 0, false);
            y[h] = __builtin_amdgcn_cvt_pk_fp8_f32(q[32], q[48], y[h], true);
        }
        return __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(*(long*)x, *(long*)y, sum, 0, 0, 0);
    });
}
extern "C" __global__ void convert_fp8(float* out, const float* in, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if(i >= n) return;
    const int e4m3 = __builtin_amdgcn_cvt_pk_fp8_f32(in[i], in[i] * 0.25f, 0, false);
    const int e5m2 = __builtin_amdgcn_cvt_pk_bf8_f32(in[i], in[i] * 0.25f, 0, false);
    out[4 * i]     = __builtin_amdgcn_cvt_f32_fp8(e4m3, 0);
    out[4 * i + 1] = __builtin_amdgcn_cvt_f32_fp8(e4m3, 1);
    out[4 * i + 2] = __builtin_amdgcn_cvt_f32_bf8(e5m2, 0);
    out[4 * i + 3] = __builtin_amdgcn_cvt_f32_bf8(e5m2, 1);
}
#endif
extern "C" __global__ void mfma_f16_32(float* c, const _Float16* a, const _Float16* b)
{
    f16x sum = {};
    for(int k = 0; k < 16; k += 8)
    {
        h4 x, y;
        for(int i = 0; i < 4; ++i) { x[i] = a[threadIdx.x % 32 * 16 + k + threadIdx.x / 32 * 4 + i]; y[i] = b[(k + threadIdx.x / 32 * 4 + i) * 32 + threadIdx.x % 32]; }
        sum = __builtin_amdgcn_mfma_f32_32x32x8f16(x, y, sum, 0, 0, 0);
    }
    for(int r = 0; r < 16; ++r) c[(r % 4 + 8 * (r / 4) + 4 * (threadIdx.x / 32)) * 32 + threadIdx.x % 32] = sum[r];
}

// One wave a query: softmax(q k^T) v, with the softmax as it goes.
extern "C" __global__ void attention(float* out, const __half* q, const __half* k, const __half* v, int keys, float scale)
{
    const int d = threadIdx.x;
    const float own = __half2float(q[blockIdx.x * 64 + d]) * scale;
    float top = -INFINITY, total = 0, sum = 0;
    for(int j = 0; j < keys; ++j)
    {
        float s = own * __half2float(k[j * 64 + d]);
        for(int o = 32; o > 0; o /= 2) s += __shfl_xor(s, o);
        const float higher = fmaxf(top, s), old = __expf(top - higher), now = __expf(s - higher);
        total = total * old + now;
        sum   = sum * old + now * __half2float(v[j * 64 + d]);
        top   = higher;
    }
    out[blockIdx.x * 64 + d] = sum / total;
}

extern "C" __global__ void gemv_half2(float* y, const __half2* a, const __half2* x, int columns)
{
    __half2 sum = __float2half2_rn(0.f);
    for(int i = threadIdx.x; i < columns; i += 64) sum = __hfma2(a[blockIdx.x * columns + i], x[i], sum);
    float s = __low2float(sum) + __high2float(sum);
    for(int o = 32; o > 0; o /= 2) s += __shfl_xor(s, o);
    if(threadIdx.x == 0) y[blockIdx.x] = s;
}

extern "C" __global__ void dot_products(float* f, int* i, const _Float16* a, const _Float16* b, const int* x, const int* y)
{
    typedef _Float16 h2 __attribute__((ext_vector_type(2)));
    const int t = threadIdx.x;
    f[t] = __builtin_amdgcn_fdot2(h2{a[2 * t], a[2 * t + 1]}, h2{b[2 * t], b[2 * t + 1]}, f[t], false);
    i[t] = __builtin_amdgcn_sdot4(x[t], y[t], i[t], false);
}

extern "C" __global__ void convolution_3x3(float* out, const float* in, const float* filter, int width, int height)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if(x >= width) return;
    float sum = 0;
    for(int j = -1; j <= 1; ++j)
        for(int i = -1; i <= 1; ++i)
            if(x + i >= 0 && x + i < width && y + j >= 0 && y + j < height)
                sum = fmaf(in[(y + j) * width + x + i], filter[(j + 1) * 3 + i + 1], sum);
    out[y * width + x] = sum;
}
