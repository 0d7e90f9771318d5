// SPDX-License-Identifier: MIT
// A stand-in for the HIP runtime on machines without a GPU. Load it before a library whose host code is to run: argument
// checks, grids and workspaces need an answer from the runtime, but no device. Memory is the host's, launches are counted
// and not run, every call succeeds. No result computed through it means anything.
#include <cstdlib>
#include <cstring>

#include <hip/hip_runtime.h>

namespace {

long launches   = 0;
dim3 last_grid  = {0, 0, 0};
dim3 last_block = {0, 0, 0};

} // namespace

extern "C" {

// Host code that was compiled alone, with -fuse-cuid=none, looks for its device code under this name.
char __hip_fatbin[64];

void** __hipRegisterFatBinary(const void*)
{
    static void* handle = nullptr;
    return &handle;
}
void __hipRegisterFunction(void**, const void*, char*, const char*, unsigned int, void*, void*, void*, void*, int*) {}
void __hipUnregisterFatBinary(void**) {}

// What was launched last, and how often.
long tileseer_stand_in_launches() { return launches; }
void tileseer_stand_in_last(unsigned int* six)
{
    const unsigned int sizes[6] = {last_grid.x, last_grid.y, last_grid.z, last_block.x, last_block.y, last_block.z};
    std::memcpy(six, sizes, sizeof sizes);
}

hipError_t hipGetDevice(int* device)
{
    *device = 0;
    return hipSuccess;
}

// The waves of the kernels that are checked here have 64 lanes.
hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int)
{
    std::memset(properties, 0, sizeof *properties);
    properties->warpSize            = 64;
    properties->multiProcessorCount = 1;
    std::strcpy(properties->gcnArchName, "gfx950");
    return hipSuccess;
}

hipError_t hipMalloc(void** address, size_t bytes)
{
    *address = std::malloc(bytes);
    return *address != nullptr || bytes == 0 ? hipSuccess : hipErrorOutOfMemory;
}

hipError_t hipFree(void* address)
{
    std::free(address);
    return hipSuccess;
}

hipError_t hipMemsetAsync(void*, int, size_t, hipStream_t) { return hipSuccess; }
hipError_t hipMemcpy(void* to, const void* from, size_t bytes, hipMemcpyKind)
{
    std::memcpy(to, from, bytes);
    return hipSuccess;
}

hipError_t hipGetLastError() { return hipSuccess; }
hipError_t hipPeekAtLastError() { return hipSuccess; }
hipError_t hipStreamSynchronize(hipStream_t) { return hipSuccess; }
const char* hipGetErrorString(hipError_t) { return "no error: there is no device"; }

hipError_t hipEventCreate(hipEvent_t*) { return hipSuccess; }
hipError_t hipEventDestroy(hipEvent_t) { return hipSuccess; }
hipError_t hipEventRecord(hipEvent_t, hipStream_t) { return hipSuccess; }
hipError_t hipEventSynchronize(hipEvent_t) { return hipSuccess; }
hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t, hipEvent_t)
{
    *milliseconds = 0;
    return hipSuccess;
}

hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t, hipStream_t)
{
    last_grid  = grid;
    last_block = block;
    return hipSuccess;
}

hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, hipStream_t* stream)
{
    *grid   = last_grid;
    *block  = last_block;
    *shared = 0;
    *stream = nullptr;
    return hipSuccess;
}

hipError_t hipLaunchKernel(const void*, dim3 grid, dim3 block, void**, size_t, hipStream_t)
{
    last_grid  = grid;
    last_block = block;
    ++launches;
    return hipSuccess;
}

} // extern "C"
