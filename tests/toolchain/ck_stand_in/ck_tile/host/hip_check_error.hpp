// Stand-in for tests, see README.md.
#pragma once
#include <hip/hip_runtime.h>

namespace ck_tile {

void hip_check_error(hipError_t error);

} // namespace ck_tile
