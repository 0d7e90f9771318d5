// Stand-in for tests, see README.md.
#pragma once
#include "ck_tile/host/convolution_parameter.hpp"
#include "ck_tile/ops/elementwise/unary_element_wise_operation.hpp"
#include "ck_tile/ops/gemm.hpp"
#include <hip/hip_runtime.h>
#include <vector>

namespace ck_tile {

enum class ConvolutionSpecialization { Default, Filter1x1Pad0, Filter1x1Stride1Pad0, Filter3x3 };

template <typename In, typename Wei, typename Out>
struct GroupedConvHostArgs : conv::ConvParam
{
    GroupedConvHostArgs(conv::ConvParam param, In in, Wei wei, const std::vector<const void*> ds, Out out, index_t slices)
        : conv::ConvParam(param), in_ptr(in), wei_ptr(wei), ds_ptr(ds), out_ptr(out), k_batch(slices)
    {
    }
    In in_ptr;
    Wei wei_ptr;
    const std::vector<const void*> ds_ptr;
    Out out_ptr;
    index_t k_batch;
};

template <typename CDElementwise = element_wise::PassThrough>
using GroupedConvFwdHostArgs       = GroupedConvHostArgs<const void*, const void*, void*>;
using GroupedConvBwdDataHostArgs   = GroupedConvHostArgs<void*, const void*, const void*>;
using GroupedConvBwdWeightHostArgs = GroupedConvHostArgs<const void*, void*, const void*>;

template <index_t NDimSpatial,
          ConvolutionSpecialization Specialization,
          typename InLayout,
          typename WeiLayout,
          typename DsLayout,
          typename OutLayout,
          index_t A                = 1,
          index_t B                = 1,
          index_t C                = 1,
          index_t NumGroupsToMerge = 1,
          bool EnableSplitImage    = false,
          bool ExplicitGemm        = false,
          typename DepthwiseTraits = void>
struct GroupedConvTraits
{
    static_assert(DsLayout::size() == 0);

    struct FixedGemmParams
    {
        static constexpr index_t TilePartitionerGroupNum = 8;
        static constexpr index_t TilePartitionerM01      = 4;
        static constexpr bool TransposeC                 = false;
        static constexpr bool FixedVectorSize            = true;
        static constexpr bool UseStructuredSparsity      = false;
        static constexpr bool Persistent                 = false;
        using ELayout                                    = tensor_layout::gemm::RowMajor;
    };

    static constexpr index_t VectorSizeA = A;
    static constexpr index_t VectorSizeB = B;
    static constexpr index_t VectorSizeC = C;
    using ImplicitGemmDsLayout           = tuple<>;

    using Row    = tensor_layout::gemm::RowMajor;
    using Column = tensor_layout::gemm::ColumnMajor;

    using AsLayoutFwd       = Row;
    using BsLayoutFwd       = Column;
    using CLayoutFwd        = Row;
    using AsLayoutBwdData   = Row;
    using BsLayoutBwdData   = Row;
    using CLayoutBwdData    = Row;
    using AsLayoutBwdWeight = Column;
    using BsLayoutBwdWeight = Row;
    using CLayoutBwdWeight  = Row;

    template <index_t WaveGroups = 1>
    using GroupedConvImplicitGemmTraitsFwd = TileGemmTraits<true, true, true, Row, Column, Row, WaveGroups>;
    template <index_t WaveGroups = 1>
    using GroupedConvImplicitGemmTraitsBwdData = TileGemmTraits<true, true, true, Row, Row, Row, WaveGroups>;
    template <index_t WaveGroups = 1>
    using GroupedConvImplicitGemmTraitsBwdWeight = TileGemmTraits<true, true, true, Column, Row, Row, WaveGroups>;
};

// A depthwise kernel has no partitioner.
template <typename Partitioner>
inline constexpr index_t rows_of_block = Partitioner::MPerBlock;
template <>
inline constexpr index_t rows_of_block<void> = 1;

template <typename Args, typename Partitioner, typename Pipeline, typename Epilogue>
struct StandInConvKernel
{
    struct KernelArgs
    {
        index_t k_batch;
        void* workspace_ptr;
    };
    static constexpr index_t sizes = sizeof(typename Epilogue::ODataType) * rows_of_block<Partitioner>;
    static constexpr bool pads     = Pipeline::Problem::UniversalTraits::kPadM;

    static KernelArgs MakeKernelArgs(const Args& args);
    static bool IsSupportedArgument(const KernelArgs& kargs);
    static dim3 GridSize(const KernelArgs& kargs);
    static dim3 BlockSize();
    void operator()(KernelArgs kargs) const;
};

} // namespace ck_tile
