// Stand-in for tests, see README.md.
#pragma once
#include <hip/hip_runtime.h>

namespace ck_tile {

struct stream_config
{
    hipStream_t stream_id_ = nullptr;
    bool time_kernel_      = false;
};

} // namespace ck_tile
