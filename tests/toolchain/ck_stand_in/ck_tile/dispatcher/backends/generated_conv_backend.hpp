// Stand-in for tests, see README.md.
#pragma once
#include "ck_tile/dispatcher/grouped_conv_registry.hpp"
#include "ck_tile/core.hpp"

#include "ck_tile/host/convolution_parameter.hpp"
#include "ck_tile/host/stream_config.hpp"
#include "ck_tile/ops/gemm.hpp"
#include "ck_tile/ops/grouped_convolution.hpp"

namespace ck_tile::dispatcher::backends {

const conv::ConvParam& stand_in_param();

template <typename Launcher, int NDim, typename HostArgs>
GroupedConvKernelInstance::RunFn stand_in_run_fn()
{
    static_assert(NDim == 2 || NDim == 3);
    return [](const GroupedConvProblem&, void*) -> float {
        HostArgs args(stand_in_param(), nullptr, nullptr, {}, nullptr, 1);
        return Launcher::launch(args, stream_config{});
    };
}

template <typename Launcher, int NDim>
GroupedConvKernelInstance::IsSupportedFn stand_in_is_supported_fn()
{
    return [](const GroupedConvProblem&) -> bool { return Launcher::is_supported(stand_in_param(), 1); };
}

#define CK_STAND_IN_BACKEND(VARIANT, HOST_ARGS)                                     \
    template <typename Launcher, int NDim>                                          \
    GroupedConvKernelInstance::RunFn make_conv_##VARIANT##_run_fn()                 \
    {                                                                               \
        return stand_in_run_fn<Launcher, NDim, HOST_ARGS>();                        \
    }                                                                               \
    template <typename Launcher, int NDim>                                          \
    GroupedConvKernelInstance::IsSupportedFn make_conv_##VARIANT##_is_supported_fn() \
    {                                                                               \
        return stand_in_is_supported_fn<Launcher, NDim>();                          \
    }
CK_STAND_IN_BACKEND(fwd, GroupedConvFwdHostArgs<>)
CK_STAND_IN_BACKEND(bwd_data, GroupedConvBwdDataHostArgs)
CK_STAND_IN_BACKEND(bwd_weight, GroupedConvBwdWeightHostArgs)
#undef CK_STAND_IN_BACKEND

} // namespace ck_tile::dispatcher::backends
