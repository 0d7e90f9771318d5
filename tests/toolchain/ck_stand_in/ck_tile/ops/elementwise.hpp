// Stand-in for tests, see README.md.
#pragma once
#include "ck_tile/core.hpp"
#include "ck_tile/ops/elementwise/unary_element_wise_operation.hpp"

namespace ck_tile {

template <typename BlockWarps, typename BlockTile, typename WarpTile, typename ComputeDataType>
struct ElementWiseShape {};

template <typename X, typename ComputeDataType, typename Y, typename Shape, typename Operation>
struct ElementWisePipelineProblem
{
    using XDataType = X;
    using YDataType = Y;
};

struct ElementWiseDefaultPolicy {};

template <typename Problem, typename Policy>
struct ElementWiseKernel
{
    static index_t BlockSize();
    template <typename... Lengths>
    static bool IsSupportedArgument(const tuple<Lengths...>& lengths);
    template <typename... Inputs, typename Dims>
    void operator()(const Dims lengths,
                    const Dims input_strides,
                    const Dims output_strides,
                    const tuple<Inputs...>& inputs,
                    typename Problem::YDataType* output) const;
};

} // namespace ck_tile
