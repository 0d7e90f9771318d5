// SPDX-License-Identifier: MIT
// One spelling for the two GPU runtimes, which differ in a prefix. A launcher may use it as well.
#pragma once

#include "launcher.hpp"

#include <cstddef>

#if defined(TILESEER_CUDA)
#include <cuda_runtime.h>
#define TILESEER_GPU(name) cuda##name
#define TILESEER_BACKEND "cuda"
#elif defined(TILESEER_HIP)
#include <hip/hip_runtime.h>
#define TILESEER_GPU(name) hip##name
#define TILESEER_BACKEND "hip"
#else
#error "define TILESEER_CUDA or TILESEER_HIP"
#endif

namespace tileseer {

// What a compiled kernel occupies, by the runtime. `kernel` is the address of the __global__ function.
inline ConvResourcesC function_resources(const void* kernel, int threads, std::size_t dynamic_shared)
{
    ConvResourcesC found = unknown_resources();
    found.threads        = threads;
    TILESEER_GPU(FuncAttributes) attributes{};
    if(TILESEER_GPU(FuncGetAttributes)(&attributes, kernel) != TILESEER_GPU(Success))
    {
        return found;
    }
    found.registers    = attributes.numRegs;
    found.local_bytes  = static_cast<std::int32_t>(attributes.localSizeBytes);
    found.shared_bytes = static_cast<std::int32_t>(attributes.sharedSizeBytes + dynamic_shared);
    int blocks         = 0;
    const auto status =
        TILESEER_GPU(OccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, kernel, threads, dynamic_shared);
    if(status == TILESEER_GPU(Success))
    {
        found.blocks = blocks;
    }
    return found;
}

} // namespace tileseer
