// SPDX-License-Identifier: MIT
// A stand-in for the HIP runtime on machines without a GPU. Load it before a library whose host code is to run: argument
// checks, grids and workspaces need an answer from the runtime, but no device. Memory is the host's, launches are counted,
// every call succeeds. Launches run where an emulated GPU is installed, as on a GPU not before
// something waits for them; without one no result computed through it means anything. Its events have an invented clock.
#include "emulated_device.hpp"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include <hip/hip_runtime.h>

namespace {

long launches   = 0;
dim3 last_grid  = {0, 0, 0};
dim3 last_block = {0, 0, 0};
size_t last_shared = 0;

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

// One stream stands for all. What it was given, and has not done yet.
std::deque<std::function<void()>> stream;
double clock_ms                       = 0;
constexpr double ms_of_an_instruction = 1e-6;
std::map<const void*, double> recorded;

bool is_executed() { return device.run != nullptr; }

// After a fault nothing runs, until somebody has asked what went wrong.
void run_stream()
{
    while(!stream.empty())
    {
        const auto next = std::move(stream.front());
        stream.pop_front();
        if(fault.empty())
        {
            next();
        }
    }
}

void run_launch(int launch)
{
    char why[tileseer::why_bytes] = "";
    const long instructions       = device.run(launch, why);
    if(instructions < 0)
    {
        fault = why;
        return;
    }
    clock_ms += static_cast<double>(instructions) * ms_of_an_instruction;
}

// The host writes to memory of the device, after what was launched before.
void host_writes(void* to, size_t bytes)
{
    char why[tileseer::why_bytes] = "";
    if(device.written != nullptr && device.written(to, bytes, why) < 0)
    {
        fault = why;
    }
}

hipError_t waited()
{
    run_stream();
    return fault.empty() ? hipSuccess : hipErrorLaunchFailure;
}

hipError_t given(void** address, size_t bytes)
{
    *address = std::malloc(bytes);
    if(*address != nullptr && device.allocated != nullptr)
    {
        device.allocated(*address, bytes);
    }
    return *address != nullptr || bytes == 0 ? hipSuccess : hipErrorOutOfMemory;
}

hipError_t taken_back(void* address)
{
    run_stream();
    if(address != nullptr && device.released != nullptr)
    {
        device.released(address);
    }
    std::free(address);
    return hipSuccess;
}

} // namespace

namespace tileseer {

const EmulatedDevice& emulated_device() { return device; }

std::string run_emulated_launches()
{
    run_stream();
    return std::exchange(fault, {});
}

} // namespace tileseer

extern "C" {

void tileseer_emulated_install(const tileseer::EmulatedDevice* installed) { device = *installed; }

// Host code that was compiled alone, with -fuse-cuid=none, looks for its device code under this name.
__attribute__((weak)) char __hip_fatbin[64];

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
    std::strcpy(properties->name, "stand-in");
    std::strcpy(properties->gcnArchName, "gfx950");
    return hipSuccess;
}

hipError_t hipDeviceGetPCIBusId(char* text, int, int)
{
    std::strcpy(text, "0000:00:00.0");
    return hipSuccess;
}
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t, int)
{
    *value = 0;
    return hipSuccess;
}
hipError_t hipDriverGetVersion(int* version) { return *version = 0, hipSuccess; }
hipError_t hipRuntimeGetVersion(int* version) { return *version = 0, hipSuccess; }
hipError_t hipFuncGetAttributes(hipFuncAttributes*, const void*) { return hipErrorNotSupported; }
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int*, const void*, int, size_t) { return hipErrorNotSupported; }

hipError_t hipMalloc(void** address, size_t bytes) { return given(address, bytes); }
hipError_t hipHostMalloc(void** address, size_t bytes, unsigned int)
{
    // The host writes to it whenever it likes.
    const hipError_t status = given(address, bytes);
    host_writes(*address, bytes);
    return status;
}
hipError_t hipFree(void* address) { return taken_back(address); }

hipError_t hipMemsetAsync(void* address, int byte, size_t bytes, hipStream_t)
{
    if(is_executed())
    {
        stream.emplace_back([=] {
            host_writes(address, bytes);
            if(fault.empty())
            {
                std::memset(address, byte, bytes);
            }
        });
    }
    return hipSuccess;
}
hipError_t hipMemcpy(void* to, const void* from, size_t bytes, hipMemcpyKind)
{
    const hipError_t status = waited();
    host_writes(to, bytes);
    std::memcpy(to, from, bytes);
    return status;
}
hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind, hipStream_t)
{
    stream.emplace_back([=] {
        host_writes(to, bytes);
        std::memcpy(to, from, bytes);
    });
    return hipSuccess;
}

hipError_t hipGetLastError() { return hipSuccess; }
hipError_t hipPeekAtLastError() { return hipSuccess; }
const char* hipGetErrorString(hipError_t)
{
    static std::string said;
    said = fault.empty() ? "no error: there is no device" : std::exchange(fault, {});
    return said.c_str();
}

hipError_t hipStreamCreate(hipStream_t* created) { return *created = nullptr, hipSuccess; }
hipError_t hipStreamDestroy(hipStream_t) { return hipSuccess; }
hipError_t hipStreamSynchronize(hipStream_t) { return waited(); }

hipError_t hipEventCreate(hipEvent_t* event)
{
    static long created = 0;
    *event              = reinterpret_cast<hipEvent_t>(++created);
    return hipSuccess;
}
hipError_t hipEventDestroy(hipEvent_t) { return hipSuccess; }
hipError_t hipEventRecord(hipEvent_t event, hipStream_t)
{
    stream.emplace_back([=] { recorded[event] = clock_ms; });
    return hipSuccess;
}
hipError_t hipEventSynchronize(hipEvent_t) { return waited(); }
hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t begin, hipEvent_t end)
{
    *milliseconds = static_cast<float>(recorded[end] - recorded[begin]);
    return hipSuccess;
}

hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared, hipStream_t)
{
    last_grid   = grid;
    last_block  = block;
    last_shared = shared;
    return hipSuccess;
}

hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, hipStream_t* stream)
{
    *grid   = last_grid;
    *block  = last_block;
    *shared = last_shared;
    *stream = nullptr;
    return hipSuccess;
}

hipError_t hipLaunchKernel(const void* host, dim3 grid, dim3 block, void** arguments, size_t shared, hipStream_t)
{
    last_grid  = grid;
    last_block = block;
    ++launches;
    if(is_executed())
    {
        const Function& function      = functions()[host];
        const unsigned int sizes[6]   = {grid.x, grid.y, grid.z, block.x, block.y, block.z};
        char why[tileseer::why_bytes] = "";
        const int launch = device.bind(function.name.c_str(), function.bundle, sizes, shared, arguments, why);
        stream.emplace_back([=, said = std::string(why)] {
            if(launch < 0)
            {
                fault = said;
                return;
            }
            run_launch(launch);
        });
    }
    return hipSuccess;
}

} // extern "C"
