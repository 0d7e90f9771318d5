// SPDX-License-Identifier: MIT
// Workgroups that publish to each other, for the check of races: publish_gfx90a.co and publish_gfx942.co.
#include <hip/hip_runtime.h>

// The first workgroup, or the last one, writes and releases. The others acquire and read.
template <bool is_first>
__device__ void exchange(int* data, int* flag, int* out)
{
    if(blockIdx.x == (is_first ? 0 : gridDim.x - 1))
    {
        data[threadIdx.x] = threadIdx.x + 7;
        __syncthreads();
        if(threadIdx.x == 0) __hip_atomic_store(flag, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
    }
    else
    {
        if(threadIdx.x == 0) while(__hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0) {}
        __syncthreads();
        out[blockIdx.x * blockDim.x + threadIdx.x] = data[threadIdx.x];
    }
}

extern "C" __global__ void publish(int* data, int* flag, int* out) { exchange<true>(data, flag, out); }
extern "C" __global__ void wait_for_last(int* data, int* flag, int* out) { exchange<false>(data, flag, out); }

// One workgroup after the other adds to data in a critical section.
extern "C" __global__ void locked(int* data, int* lock, int* out)
{
    if(threadIdx.x == 0)
    {
        int is_free = 0;
        while(!__hip_atomic_compare_exchange_strong(lock, &is_free, 1, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED,
                                                    __HIP_MEMORY_SCOPE_AGENT))
        {
            is_free = 0;
        }
    }
    __syncthreads();
    data[threadIdx.x] += threadIdx.x;
    __syncthreads();
    if(threadIdx.x == 0) __hip_atomic_store(lock, 0, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
    out[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}

// What the workgroups have written is added up by the one that is the last to come.
extern "C" __global__ void last_adds(int* data, int* count, int* out)
{
    __shared__ int last;
    data[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x + blockIdx.x;
    __threadfence();
    __syncthreads();
    if(threadIdx.x == 0) last = atomicAdd(count, 1) == (int)gridDim.x - 1;
    __syncthreads();
    if(last)
    {
        __threadfence();
        int sum = 0;
        for(unsigned i = 0; i < gridDim.x; ++i) sum += data[i * blockDim.x + threadIdx.x];
        out[threadIdx.x] = sum;
        if(threadIdx.x == 0) *count = 0;
    }
}
