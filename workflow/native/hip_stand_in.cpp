// SPDX-License-Identifier: MIT
// A stand-in for the HIP runtime on machines without a GPU. Load it before a library whose host code is to run: argument
// checks, grids and workspaces need an answer from the runtime, but no device. Memory is the host's, launches are counted,
// every call succeeds. Launches run where an executor is installed (tileseer.devices.emulated); without one no result
// computed through it means anything.
#include "emulated_device.hpp"

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include <hip/hip_runtime.h>

namespace {

long launches   = 0;
dim3 last_grid  = {0, 0, 0};
dim3 last_block = {0, 0, 0};

// What the compiler puts into a library beside its device code.
struct FatBinary
{
    unsigned int magic;
    unsigned int version;
    const void* bundle;
    void* unused;
};

struct Function
{
    std::string name;
    const void* bundle;
};

std::map<const void*, Function>& functions()
{
    static std::map<const void*, Function> registered;
    return registered;
}

tileseer::EmulatedDevice device{};
std::string fault;

} // namespace

namespace tileseer {

const EmulatedDevice& emulated_device() { return device; }

std::string take_emulated_fault()
{
    std::string taken;
    taken.swap(fault);
    return taken;
}

} // namespace tileseer

extern "C" {

void tileseer_emulated_install(const tileseer::EmulatedDevice* installed) { device = *installed; }

// Host code that was compiled alone, with -fuse-cuid=none, looks for its device code under this name.
char __hip_fatbin[64];

void** __hipRegisterFatBinary(const void* binary)
{
    return new void*(const_cast<void*>(static_cast<const FatBinary*>(binary)->bundle));
}
void __hipRegisterFunction(void** handle, const void* host, char*, const char* name, unsigned int, void*, void*, void*,
                           void*, int*)
{
    functions()[host] = {name, *handle};
}
void __hipUnregisterFatBinary(void** handle) { delete handle; }

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

hipError_t hipMemsetAsync(void* address, int byte, size_t bytes, hipStream_t)
{
    if(device.launch != nullptr)
    {
        std::memset(address, byte, bytes);
    }
    return hipSuccess;
}
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

hipError_t hipLaunchKernel(const void* host, dim3 grid, dim3 block, void** arguments, size_t shared, hipStream_t)
{
    last_grid  = grid;
    last_block = block;
    ++launches;
    // As on a GPU, what goes wrong is told at the next synchronization, and nothing runs after it.
    if(device.launch != nullptr && fault.empty())
    {
        const Function& function      = functions()[host];
        const unsigned int sizes[6]   = {grid.x, grid.y, grid.z, block.x, block.y, block.z};
        char why[tileseer::why_bytes] = "";
        if(device.launch(function.name.c_str(), function.bundle, sizes, shared, arguments, why) != 0)
        {
            fault = why;
        }
    }
    return hipSuccess;
}

} // extern "C"
