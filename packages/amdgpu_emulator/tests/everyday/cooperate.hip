// SPDX-License-Identifier: MIT
// Everyday kernels: threads that work together, by the LDS, by shuffles, by atomics.
#include <cassert>

#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>

template <class T, int THREADS>
__global__ void reduce_lds(T* out, const T* in, int n)
{
    __shared__ T kept[THREADS];
    T sum = 0;
    for(int i = threadIdx.x; i < n; i += THREADS) sum += in[i];
    kept[threadIdx.x] = sum;
    __syncthreads();
    for(int half = THREADS / 2; half > 0; half /= 2)
    {
        if(threadIdx.x < half) kept[threadIdx.x] += kept[threadIdx.x + half];
        __syncthreads();
    }
    if(threadIdx.x == 0) out[0] = kept[0];
}
template __global__ void reduce_lds<float, 256>(float*, const float*, int);
template __global__ void reduce_lds<double, 128>(double*, const double*, int);

__device__ float wave_sum(float x)
{
    for(int o = 32; o > 0; o /= 2) x += __shfl_xor(x, o);
    return x;
}
__device__ float wave_max(float x)
{
    for(int o = 32; o > 0; o /= 2) x = fmaxf(x, __shfl_xor(x, o));
    return x;
}

extern "C" __global__ void reduce_wave(float* out, const float* in, int n)
{
    float sum = 0;
    for(int i = threadIdx.x; i < n; i += 64) sum += in[i];
    sum = wave_sum(sum);
    if(threadIdx.x == 0) out[blockIdx.x] = sum;
}

extern "C" __global__ void reduce_wave_down(double* out, const double* in)
{
    double x = in[threadIdx.x];
    for(int o = 32; o > 0; o /= 2) x += __shfl_down(x, o);
    if(threadIdx.x % 64 == 0) out[threadIdx.x / 64] = x;
}

extern "C" __global__ void reduce_int_max(int* out, const int* in)
{
    int x = in[threadIdx.x];
    for(int o = 1; o < 64; o *= 2) x = max(x, __shfl_xor(x, o));
    out[threadIdx.x] = x + __shfl(x, 3) + __shfl_up(in[threadIdx.x], 1);
}

extern "C" __global__ void scan_lds(int* out, const int* in)
{
    __shared__ int kept[2][256];
    int from = 0;
    kept[0][threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    for(int step = 1; step < 256; step *= 2)
    {
        kept[1 - from][threadIdx.x] = kept[from][threadIdx.x] + (threadIdx.x >= step ? kept[from][threadIdx.x - step] : 0);
        from = 1 - from;
        __syncthreads();
    }
    out[threadIdx.x] = kept[from][threadIdx.x];
}

extern "C" __global__ void scan_wave(float* out, const float* in)
{
    float x = in[threadIdx.x];
    for(int o = 1; o < 64; o *= 2)
    {
        const float y = __shfl_up(x, o);
        if(threadIdx.x % 64 >= o) x += y;
    }
    out[threadIdx.x] = x;
}

extern "C" __global__ void softmax_rows(float* out, const float* in, int columns)
{
    const float* row = in + blockIdx.x * columns;
    float top = -INFINITY, sum = 0;
    for(int i = threadIdx.x; i < columns; i += 64) top = fmaxf(top, row[i]);
    top = wave_max(top);
    for(int i = threadIdx.x; i < columns; i += 64) sum += expf(row[i] - top);
    sum = wave_sum(sum);
    for(int i = threadIdx.x; i < columns; i += 64) out[blockIdx.x * columns + i] = expf(row[i] - top) / sum;
}

extern "C" __global__ void layer_norm(float* out, const float* in, const float* scale, const float* shift, int columns, float eps)
{
    __shared__ float parts[2][4];
    const float* row = in + blockIdx.x * columns;
    float sum = 0, squares = 0;
    for(int i = threadIdx.x; i < columns; i += 256) { sum += row[i]; squares += row[i] * row[i]; }
    sum = wave_sum(sum);
    squares = wave_sum(squares);
    if(threadIdx.x % 64 == 0) { parts[0][threadIdx.x / 64] = sum; parts[1][threadIdx.x / 64] = squares; }
    __syncthreads();
    sum = parts[0][0] + parts[0][1] + parts[0][2] + parts[0][3];
    squares = parts[1][0] + parts[1][1] + parts[1][2] + parts[1][3];
    const float mean = sum / columns, inverse = rsqrtf(squares / columns - mean * mean + eps);
    for(int i = threadIdx.x; i < columns; i += 256)
        out[blockIdx.x * columns + i] = (row[i] - mean) * inverse * scale[i] + shift[i];
}

template <class T>
__global__ void transpose(T* out, const T* in, int rows, int columns)
{
    __shared__ T tile[32][33];
    const int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for(int j = 0; j < 32; j += 8)
        if(x < columns && y + j < rows) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * columns + x];
    __syncthreads();
    const int tx = blockIdx.y * 32 + threadIdx.x, ty = blockIdx.x * 32 + threadIdx.y;
    for(int j = 0; j < 32; j += 8)
        if(tx < rows && ty + j < columns) out[(ty + j) * rows + tx] = tile[threadIdx.x][threadIdx.y + j];
}
template __global__ void transpose<float>(float*, const float*, int, int);
template __global__ void transpose<__half>(__half*, const __half*, int, int);

extern "C" __global__ void histogram(unsigned* counts, const unsigned char* in, int n)
{
    __shared__ unsigned own[256];
    own[threadIdx.x] = 0;
    __syncthreads();
    for(int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) atomicAdd(&own[in[i]], 1u);
    __syncthreads();
    if(own[threadIdx.x]) atomicAdd(&counts[threadIdx.x], own[threadIdx.x]);
}

extern "C" __global__ void atomics_64(unsigned long long* sums, const unsigned long long* in, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if(i >= n) return;
    atomicAdd(&sums[0], in[i]);
    atomicMax(&sums[1], in[i]);
    atomicMin(&sums[2], in[i]);
    atomicOr(&sums[3], in[i]);
    atomicXor(&sums[4], in[i]);
    atomicAnd(&sums[5], in[i] | 0xff);
    atomicMax((long long*)&sums[6], (long long)in[i]);
}

extern "C" __global__ void atomics_float(float* f, double* d, const float* in, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if(i >= n) return;
    atomicAdd(f, in[i]);
    unsafeAtomicAdd(f + 1, in[i]);
    atomicAdd(d, (double)in[i]);
    unsafeAtomicAdd(d + 1, (double)in[i]);
    atomicMax(f + 2, in[i]);
}

extern "C" __global__ void atomics_lds_64(unsigned long long* out, double* sum, const unsigned long long* in)
{
    __shared__ unsigned long long kept[2];
    __shared__ double total;
    if(threadIdx.x == 0) { kept[0] = 0; kept[1] = 0; total = 0; }
    __syncthreads();
    atomicAdd(&kept[0], in[threadIdx.x]);
    atomicMax(&kept[1], in[threadIdx.x]);
    atomicAdd(&total, (double)(in[threadIdx.x] & 1023));
    __syncthreads();
    if(threadIdx.x < 2) out[threadIdx.x] = kept[threadIdx.x];
    if(threadIdx.x == 2) sum[0] = total;
}

extern "C" __global__ void compare_and_swap(unsigned long long* best, const float* in, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if(i >= n) return;
    unsigned long long seen = *(volatile unsigned long long*)best;
    const unsigned long long mine = (unsigned long long)__float_as_uint(in[i]) << 32 | i;
    while(mine > seen) { const unsigned long long was = atomicCAS(best, seen, mine); if(was == seen) break; seen = was; }
}

extern "C" __global__ void votes(unsigned long long* out, const int* in)
{
    const int x = in[threadIdx.x];
    const unsigned long long even = __ballot(x % 2 == 0);
    out[threadIdx.x] = even + __any(x > 90) + 2 * __all(x >= 0) + __popcll(even & ((1ull << (threadIdx.x % 64)) - 1));
}

extern "C" __global__ void compact(int* out, int* count, const int* in, int n)
{
    __shared__ int begin;
    const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 64;
    const bool keeps = i < n && in[i] % 3 == 0;
    const unsigned long long kept = __ballot(keeps);
    int base = 0;
    if(lane == 0) base = atomicAdd(count, __popcll(kept));
    base = __shfl(base, 0);
    if(keeps) out[base + __popcll(kept & ((1ull << lane) - 1))] = in[i];
}

extern "C" __global__ void bitonic_sort(int* data)
{
    __shared__ int kept[256];
    kept[threadIdx.x] = data[threadIdx.x];
    __syncthreads();
    for(int size = 2; size <= 256; size *= 2)
        for(int step = size / 2; step > 0; step /= 2)
        {
            const int other = threadIdx.x ^ step;
            if(other > threadIdx.x)
            {
                const int a = kept[threadIdx.x], b = kept[other];
                if((a > b) == ((threadIdx.x & size) == 0)) { kept[threadIdx.x] = b; kept[other] = a; }
            }
            __syncthreads();
        }
    data[threadIdx.x] = kept[threadIdx.x];
}

extern "C" __global__ void stencil_2d(float* out, const float* in, int width, int height)
{
    __shared__ float tile[18][18];
    const int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    auto at = [&](int j, int i) { return j < 0 || i < 0 || j >= height || i >= width ? 0.f : in[j * width + i]; };
    for(int j = threadIdx.y; j < 18; j += 16)
        for(int i = threadIdx.x; i < 18; i += 16) tile[j][i] = at(blockIdx.y * 16 + j - 1, blockIdx.x * 16 + i - 1);
    __syncthreads();
    if(x >= width || y >= height) return;
    const int i = threadIdx.x + 1, j = threadIdx.y + 1;
    out[y * width + x] = 0.5f * tile[j][i] + 0.125f * (tile[j - 1][i] + tile[j + 1][i] + tile[j][i - 1] + tile[j][i + 1]);
}

// One wave produces for the other one, by flags in the LDS.
extern "C" __global__ void specialised_waves(int* out, const int* in, int rounds)
{
    __shared__ int data[64], full, empty;
    if(threadIdx.x == 0) { full = 0; empty = 0; }
    __syncthreads();
    const int lane = threadIdx.x % 64;
    int sum = 0;
    for(int r = 0; r < rounds; ++r)
        if(threadIdx.x < 64)
        {
            while(__hip_atomic_load(&empty, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_WORKGROUP) != r) {}
            data[lane] = in[r * 64 + lane] * 2;
            __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
            if(lane == 0) __hip_atomic_store(&full, r + 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
        }
        else
        {
            while(__hip_atomic_load(&full, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_WORKGROUP) != r + 1) {}
            sum += data[63 - lane];
            __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
            if(lane == 0) __hip_atomic_store(&empty, r + 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
        }
    if(threadIdx.x >= 64) out[lane] = sum;
}

extern "C" __global__ void lds_lock(int* out)
{
    __shared__ int lock, total;
    if(threadIdx.x == 0) { lock = 0; total = 0; }
    __syncthreads();
    if(threadIdx.x % 64 == 0)
    {
        int is_free = 0;
        while(!__hip_atomic_compare_exchange_strong(&lock, &is_free, 1, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP)) is_free = 0;
        total += threadIdx.x / 64 + 1;
        __hip_atomic_store(&lock, 0, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
    }
    __syncthreads();
    if(threadIdx.x == 0) *out = total;
}

__device__ int grabbed(int* shared, int* own, int which) { return *(which ? shared : own); }
extern "C" __global__ void generic_pointers(int* out, const int* in)
{
    __shared__ int kept[64];
    int own[4] = {in[threadIdx.x], 2, 3, 4};
    kept[threadIdx.x] = in[threadIdx.x] * 5;
    __syncthreads();
    int* p = in[threadIdx.x] % 2 ? &kept[63 - threadIdx.x] : &own[in[threadIdx.x] & 3];
    out[threadIdx.x] = *(volatile int*)p;
}

__constant__ float weights[5] = {0.1f, 0.2f, 0.4f, 0.2f, 0.1f};
__device__ int launches;
extern "C" __global__ void constants_and_globals(float* out, const float* in, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if(i == 0) launches += 1;
    if(i >= n) return;
    float sum = 0;
    for(int k = 0; k < 5; ++k) { const int at = i + k - 2; sum += at >= 0 && at < n ? weights[k] * in[at] : 0; }
    out[i] = sum;
}

extern "C" __global__ void indexed_registers(float* out, const float* in, const int* at, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    float own[16];
    for(int k = 0; k < 16; ++k) own[k] = in[(i + k) % n];
    own[at[blockIdx.x] & 15] = 9;
    if(i < n) out[i] = own[at[threadIdx.x / 64] & 15] + own[at[i] & 15];
}

extern "C" __global__ void dynamic_lds(float* out, const float* in, int n)
{
    extern __shared__ float all[];
    for(int i = threadIdx.x; i < n; i += blockDim.x) all[i] = in[i];
    __syncthreads();
    for(int i = threadIdx.x; i < n; i += blockDim.x) out[i] = all[n - 1 - i] + blockDim.x * gridDim.x;
}

extern "C" __global__ void asserts(int* out, const int* in)
{
    assert(in[threadIdx.x] >= 0);
    out[threadIdx.x] = in[threadIdx.x] + 1;
}

struct Shape { virtual __device__ float area(float x) const = 0; };
struct Square : Shape { __device__ float area(float x) const override { return x * x; } };
struct Strip : Shape { __device__ float area(float x) const override { return 3 * x; } };
extern "C" __global__ void virtual_functions(float* out)
{
    Square square;
    Strip strip;
    const Shape* shape = threadIdx.x % 2 ? (const Shape*)&square : (const Shape*)&strip;
    out[threadIdx.x] = shape->area(out[threadIdx.x]);
}
