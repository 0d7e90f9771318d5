// SPDX-License-Identifier: MIT
// One spelling for the two GPU runtimes, which differ in a prefix. A launcher may use it as well.
#pragma once

#include "launcher.hpp"

#include <cstddef>

#if defined(TILESEER_CUDA)
#include <cuda_runtime.h>
#define TW_GPU(name) cuda##name
#define TW_BACKEND "cuda"
#elif defined(TILESEER_HIP)
#include <hip/hip_runtime.h>
#define TW_GPU(name) hip##name
#define TW_BACKEND "hip"
#else
#error "define TILESEER_CUDA or TILESEER_HIP"
#endif

namespace tileseer {

// What a compiled kernel occupies, as the runtime tells it. `kernel` is the address of the __global__ function.
inline ConvResourcesC function_resources(const void* kernel, int threads, std::size_t dynamic_shared)
{
    ConvResourcesC found = unknown_resources();
    found.threads        = threads;
    TW_GPU(FuncAttributes) attributes{};
    if(TW_GPU(FuncGetAttributes)(&attributes, kernel) != TW_GPU(Success))
    {
        return found;
    }
    found.registers    = attributes.numRegs;
    found.local_bytes  = static_cast<std::int32_t>(attributes.localSizeBytes);
    found.shared_bytes = static_cast<std::int32_t>(attributes.sharedSizeBytes + dynamic_shared);
    int blocks         = 0;
    if(TW_GPU(OccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, kernel, threads, dynamic_shared) == TW_GPU(Success))
    {
        found.blocks = blocks;
    }
    return found;
}

} // namespace tileseer
