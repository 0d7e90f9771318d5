// SPDX-License-Identifier: MIT
// How a kernel family plugs in: a class with static members, and one object that lists it among the kernels of its
// library. The library exports tileseer_register_kernels, which hands them to a driver.
//
//   struct MyKernel {
//       static constexpr const char* name = "...";
//       static constexpr int direction = CONV_FORWARD, ndim = 2, dtype = CONV_FP16;
//       static bool supports(const ConvProblemC& problem, std::string& why);   // touches no GPU
//       static std::int64_t workspace_bytes(const ConvProblemC& problem);
//       static void launch(const ConvProblemC& problem, const tileseer::Tensors& tensors);   // may throw
//       static ConvResourcesC resources();
//   };
//   static const tileseer::Registration<MyKernel> registration;
//
// Nothing but this header and tileseer_conv.h is needed.
#pragma once

#include "tileseer_conv.h"

#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace tileseer {

// Addresses of one launch, on the device.
struct Tensors
{
    const void* a;
    const void* b;
    void* c;
    void* workspace;
    void* stream;
};

inline ConvResourcesC unknown_resources() { return {-1, -1, -1, -1, -1}; }

inline std::int32_t output_extent(std::int64_t in, std::int64_t filter, std::int64_t stride, std::int64_t pad, std::int64_t dilation)
{
    const std::int64_t room = in + 2 * pad - dilation * (filter - 1) - 1;
    return room < 0 ? 0 : static_cast<std::int32_t>(room / stride + 1);
}

inline std::int32_t output_d(const ConvProblemC& p)
{
    return output_extent(p.input_d, p.filter_z, p.stride_d, p.pad_d, p.dilation_d);
}

inline std::int32_t output_h(const ConvProblemC& p)
{
    return output_extent(p.input_h, p.filter_y, p.stride_h, p.pad_h, p.dilation_h);
}

inline std::int32_t output_w(const ConvProblemC& p)
{
    return output_extent(p.input_w, p.filter_x, p.stride_w, p.pad_w, p.dilation_w);
}

// A 2D kernel runs what has no depth.
inline bool has_depth(const ConvProblemC& p)
{
    return p.input_d != 1 || p.filter_z != 1 || p.stride_d != 1 || p.pad_d != 0 || p.dilation_d != 1;
}

// Hidden, as what is below: the loader would take that of the first library with the name for all of them.
__attribute__((visibility("hidden"))) inline std::vector<const ConvKernelC*>& kernels_of_library()
{
    static std::vector<const ConvKernelC*> kernels;
    return kernels;
}

template <typename K>
class __attribute__((visibility("hidden"))) Registration
{
    public:
    Registration() { kernels_of_library().push_back(&kernel_); }

    private:
    static int supports(const ConvProblemC* problem, char* why, int size)
    {
        try
        {
            std::string reason;
            const bool fits = K::supports(*problem, reason);
            std::snprintf(why, static_cast<std::size_t>(size), "%s", reason.c_str());
            return fits ? 1 : 0;
        }
        catch(const std::exception& error)
        {
            std::snprintf(why, static_cast<std::size_t>(size), "%s", error.what());
            return 0;
        }
    }

    static int launch(const ConvProblemC* problem, const void* a, const void* b, void* c, void* workspace, void* stream,
                      char* why, int size)
    {
        try
        {
            K::launch(*problem, Tensors{a, b, c, workspace, stream});
            return CONV_OK;
        }
        catch(const std::exception& error)
        {
            std::snprintf(why, static_cast<std::size_t>(size), "%s", error.what());
        }
        catch(...)
        {
            std::snprintf(why, static_cast<std::size_t>(size), "an exception of unknown type");
        }
        return CONV_UNSUPPORTED;
    }

    static std::int64_t workspace_bytes(const ConvProblemC* problem) { return K::workspace_bytes(*problem); }

    static int resources(ConvResourcesC* resources)
    {
        *resources = K::resources();
        return CONV_OK;
    }

    static constexpr ConvKernelC kernel_ = {K::name,  K::direction,     K::ndim, K::dtype,
                                            supports, workspace_bytes, launch,  resources};
};

} // namespace tileseer

extern "C" __attribute__((visibility("default"), used)) inline void
tileseer_register_kernels(void (*add)(const ConvKernelC* kernel))
{
    for(const ConvKernelC* kernel : tileseer::kernels_of_library())
    {
        add(kernel);
    }
}
