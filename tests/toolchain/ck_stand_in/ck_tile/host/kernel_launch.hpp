// Stand-in for tests, see README.md.
#pragma once
#include "ck_tile/host/stream_config.hpp"
#include <cstddef>
#include <type_traits>

namespace ck_tile {

// The call that a launch makes: a kernel that does not take these arguments does not compile.
template <int MinBlocksPerCu = 1, typename Kernel, typename... Args>
auto make_kernel(Kernel kernel, dim3, dim3, std::size_t, Args... args)
{
    static_assert(MinBlocksPerCu >= 1);
    return [=](const stream_config&) { kernel(args...); };
}

template <typename... Callables>
float launch_kernel(const stream_config& stream, Callables&&... callables)
{
    (callables(stream), ...);
    return 0;
}

template <typename Preprocess, typename... Callables>
float launch_kernel_time_mask(const stream_config& stream, Preprocess preprocess, Callables&&... callables)
{
    static_assert(std::is_void_v<decltype(preprocess())>);
    preprocess();
    (callables(stream), ...);
    return 0;
}

} // namespace ck_tile
