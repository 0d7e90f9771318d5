// SPDX-License-Identifier: MIT
// How an emitted CK Tile launcher plugs into the driver. One file for each kernel makes a module of it:
//
//   #include "NAME.hpp"
//   #include "ck_tile_kernel.hpp"
//   TILESEER_CK_KERNEL(NAME, CONV_FORWARD, 2, CONV_BF16)
#pragma once

#include "launcher.hpp"

#include <ck_tile/core.hpp>
#include <ck_tile/host/convolution_parameter.hpp>
#include <ck_tile/host/stream_config.hpp>
#include <hip/hip_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tileseer {

// CK Tile counts the channels of one group; the depth is left out of a 2D convolution.
template <int NDim>
ck_tile::conv::ConvParam ck_param(const ConvProblemC& p)
{
    using Lengths      = std::vector<ck_tile::index_t>;
    const auto lengths = [](std::int32_t d, std::int32_t h, std::int32_t w) {
        return NDim == 3 ? Lengths{d, h, w} : Lengths{h, w};
    };
    const Lengths pads = lengths(p.pad_d, p.pad_h, p.pad_w);
    return ck_tile::conv::ConvParam(NDim, p.G, p.N, p.K / p.G, p.C / p.G, lengths(p.filter_z, p.filter_y, p.filter_x),
                                    lengths(p.input_d, p.input_h, p.input_w),
                                    lengths(p.stride_d, p.stride_h, p.stride_w),
                                    lengths(p.dilation_d, p.dilation_h, p.dilation_w), pads, pads);
}

// Our (a, b, c) as CK Tile's (input, weight, output).
template <typename HostArgs, int Direction, int NDim>
HostArgs ck_args(const ConvProblemC& p, const void* a, const void* b, void* c)
{
    const auto param = ck_param<NDim>(p);
    if constexpr(Direction == CONV_FORWARD)
    {
        return HostArgs(param, a, b, {}, c, p.split_k);
    }
    else if constexpr(Direction == CONV_BWD_DATA)
    {
        return HostArgs(param, c, b, {}, a, p.split_k);
    }
    else
    {
        return HostArgs(param, a, c, {}, b, p.split_k);
    }
}

template <typename Launcher, typename = void>
struct HasWorkspace : std::false_type
{
};

template <typename Launcher>
struct HasWorkspace<Launcher, std::void_t<decltype(&Launcher::launch_with_workspace)>> : std::true_type
{
};

// `Traits` has the launcher, its name, direction, dimensionality and data type.
template <typename Traits>
struct CkTileKernel
{
    using Launcher = typename Traits::Launcher;
    using HostArgs = typename Launcher::HostArgs;

    static constexpr const char* name = Traits::name;
    static constexpr int direction = Traits::direction, ndim = Traits::ndim, dtype = Traits::dtype;

    static bool supports(const ConvProblemC& problem, std::string& why)
    {
        if(Launcher::is_supported(ck_param<ndim>(problem), problem.split_k))
        {
            return true;
        }
        why = "the kernel's own argument check refuses the problem";
        return false;
    }

    static std::int64_t workspace_bytes([[maybe_unused]] const ConvProblemC& problem)
    {
        if constexpr(HasWorkspace<Launcher>::value)
        {
            return static_cast<std::int64_t>(
                Launcher::workspace_bytes(ck_args<HostArgs, direction, ndim>(problem, nullptr, nullptr, nullptr)));
        }
        else
        {
            return 0;
        }
    }

    static void launch(const ConvProblemC& problem, const Tensors& t)
    {
        const auto args = ck_args<HostArgs, direction, ndim>(problem, t.a, t.b, t.c);
        // The stream does not measure: one launch, with the zeroing and the second stage that belong to it.
        ck_tile::stream_config stream{};
        stream.stream_id_   = static_cast<hipStream_t>(t.stream);
        stream.time_kernel_ = false;
        if constexpr(HasWorkspace<Launcher>::value)
        {
            Launcher::launch_with_workspace(args, stream, t.workspace);
        }
        else
        {
            Launcher::launch(args, stream);
        }
    }

    // The compile stage reads them from the code object.
    static ConvResourcesC resources() { return unknown_resources(); }
};

} // namespace tileseer

#define TILESEER_CK_KERNEL(NAME, DIRECTION, NDIM, DTYPE)                                     \
    namespace {                                                                              \
    struct NAME##_Traits                                                                     \
    {                                                                                        \
        using Launcher                    = NAME##_Launcher;                                 \
        static constexpr const char* name = #NAME;                                           \
        static constexpr int direction = DIRECTION, ndim = NDIM, dtype = DTYPE;              \
    };                                                                                       \
    const tileseer::Registration<tileseer::CkTileKernel<NAME##_Traits>> NAME##_registration; \
    }
