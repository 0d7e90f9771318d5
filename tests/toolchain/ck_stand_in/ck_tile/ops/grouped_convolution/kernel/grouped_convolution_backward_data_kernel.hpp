// Stand-in for tests, see README.md.
#pragma once
#include "ck_tile/ops/grouped_convolution.hpp"

namespace ck_tile {

template <typename Traits, typename Partitioner, typename Pipeline, typename Epilogue>
struct GroupedConvolutionBackwardDataKernel : StandInConvKernel<GroupedConvBwdDataHostArgs, Partitioner, Pipeline, Epilogue> {};

} // namespace ck_tile
