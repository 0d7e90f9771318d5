// Stand-in for tests, see README.md.
#pragma once
#include <cstddef>

namespace ck_tile {

struct DeviceMem
{
    explicit DeviceMem(std::size_t bytes);
    DeviceMem(const DeviceMem&) = delete;
    void* GetDeviceBuffer() const;
};

} // namespace ck_tile
