// Stand-in for tests, see README.md.
#pragma once

namespace ck_tile {

enum class GemmPipeline
{
    BASIC_V1,
    BASIC_V2,
    BASIC_ASYNC_V1,
    MEMORY,
    COMPUTE_V3,
    COMPUTE_V4,
    COMPUTE_V5,
    COMPUTE_V6,
    COMPUTE_ASYNC,
    WAVELET
};

} // namespace ck_tile
