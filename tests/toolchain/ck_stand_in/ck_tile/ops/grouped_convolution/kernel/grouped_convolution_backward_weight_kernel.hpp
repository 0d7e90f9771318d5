// Stand-in for tests, see README.md.
#pragma once
#include "ck_tile/ops/grouped_convolution.hpp"

namespace ck_tile {

template <typename Traits, typename Partitioner, typename Pipeline, typename Epilogue>
struct GroupedConvolutionBackwardWeightKernel
    : StandInConvKernel<GroupedConvBwdWeightHostArgs, Partitioner, Pipeline, Epilogue>
{
    using KernelArgs =
        typename StandInConvKernel<GroupedConvBwdWeightHostArgs, Partitioner, Pipeline, Epilogue>::KernelArgs;
    static index_t GetWorkSpaceSize(const KernelArgs& kargs);
    static void SetWorkSpacePointer(KernelArgs& kargs, void* workspace);
};

} // namespace ck_tile
