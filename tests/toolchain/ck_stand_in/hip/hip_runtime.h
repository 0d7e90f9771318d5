// Stand-in for tests, see README.md.
#pragma once
#include <cstddef>

struct dim3
{
    unsigned int x, y, z;
    constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1) : x(x_), y(y_), z(z_) {}
};
using hipStream_t = struct ihipStream_t*;
enum hipError_t { hipSuccess = 0 };
hipError_t hipMemsetAsync(void* target, int value, std::size_t bytes, hipStream_t stream);
