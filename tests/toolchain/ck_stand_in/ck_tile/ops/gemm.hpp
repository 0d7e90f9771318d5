// Stand-in for tests, see README.md.
#pragma once
#include "ck_tile/core.hpp"
#include <type_traits>

namespace ck_tile {

enum class GemmPipelineScheduler { Intrawave, Interwave };
enum class TailNumber { Empty, Odd, Even };

template <typename BlockTile_, typename BlockWarps_, typename WarpTile_>
struct TileGemmShape
{
    static constexpr index_t kM = BlockTile_::at(number<0>{});
    static constexpr index_t kN = BlockTile_::at(number<1>{});
    static constexpr index_t kK = BlockTile_::at(number<2>{});
};

template <typename Shape, index_t GroupNum, index_t M01>
struct GemmSpatiallyLocalTilePartitioner
{
    static constexpr index_t MPerBlock = Shape::kM;
    static constexpr index_t NPerBlock = Shape::kN;
    static constexpr index_t KPerBlock = Shape::kK;
    static index_t GetLoopNum(index_t k);
};

template <bool PadM, bool PadN, bool PadK, typename ALayout, typename BLayout, typename CLayout, index_t WaveGroups>
struct TileGemmTraits
{
    static constexpr index_t NumWaveGroups = WaveGroups;
};

template <bool PadM,
          bool PadN,
          bool PadK,
          bool DoubleSmem,
          typename AsLayout,
          typename BsLayout,
          typename CLayout,
          bool TransposeC,
          bool UseStructuredSparsity,
          bool Persistent,
          index_t WaveGroups>
struct TileGemmUniversalTraits
{
    static constexpr bool kPadM            = PadM;
    static constexpr bool kPadN            = PadN;
    static constexpr bool kPadK            = PadK;
    static constexpr bool DoubleSmemBuffer = DoubleSmem;
};

template <typename A,
          typename B,
          typename Acc,
          typename Shape,
          typename Traits,
          typename AComputeDataType,
          typename BComputeDataType,
          typename AElementWise,
          typename BElementWise,
          bool FixedVectorSize,
          index_t VectorSizeA,
          index_t VectorSizeB>
struct GemmPipelineProblem
{
    static constexpr index_t loads = Traits::NumWaveGroups;
};

template <typename A,
          typename B,
          typename Acc,
          typename Shape,
          typename Traits,
          GemmPipelineScheduler Scheduler,
          typename AElementWise,
          typename BElementWise,
          typename AComputeDataType,
          typename BComputeDataType,
          bool FixedVectorSize,
          index_t VectorSizeA,
          index_t VectorSizeB>
struct UniversalGemmPipelineProblem
{
    using UniversalTraits = Traits;
};

struct UniversalGemmPipelineAgBgCrPolicy {};

template <typename Problem>
struct StandInLoop
{
    static bool BlockHasHotloop(index_t loops);
    static TailNumber GetBlockLoopTailNum(index_t loops);
};

// A run function gets what it is given at run time as types.
template <typename Problem>
struct StandInLoopOfHotLoop : StandInLoop<Problem>
{
    template <typename Run>
    static auto TailHandler(const Run& run, bool)
    {
        return run(std::true_type{});
    }
};

template <typename Problem>
struct StandInLoopOfBoth : StandInLoop<Problem>
{
    template <typename Run>
    static auto TailHandler(const Run& run, bool, TailNumber)
    {
        return run(std::true_type{}, std::integral_constant<TailNumber, TailNumber::Odd>{});
    }
};

template <typename Problem>
struct BaseGemmPipelineAGmemBGmemCRegV1 : StandInLoopOfHotLoop<Problem> {};

#define CK_STAND_IN_BASE(NAME)                      \
    template <typename Problem>                     \
    struct BaseGemmPipeline##NAME : StandInLoopOfBoth<Problem> {};
CK_STAND_IN_BASE(AGmemBGmemCRegV2)
CK_STAND_IN_BASE(AgBgCrMem)
CK_STAND_IN_BASE(AgBgCrCompV3)
CK_STAND_IN_BASE(AgBgCrCompV4)
CK_STAND_IN_BASE(AgBgCrCompV5)
CK_STAND_IN_BASE(AgBgCrCompV6)
CK_STAND_IN_BASE(AgBgCrCompAsync)
#undef CK_STAND_IN_BASE

#define CK_STAND_IN_PIPELINE(NAME)                                                           \
    template <typename PipelineProblem, typename Policy = UniversalGemmPipelineAgBgCrPolicy> \
    struct GemmPipeline##NAME                                                                \
    {                                                                                        \
        using Problem = PipelineProblem;                                                     \
    };
CK_STAND_IN_PIPELINE(AGmemBGmemCRegV1)
CK_STAND_IN_PIPELINE(AGmemBGmemCRegV2)
CK_STAND_IN_PIPELINE(AGmemBGmemCRegAsyncV1)
CK_STAND_IN_PIPELINE(AgBgCrMem)
CK_STAND_IN_PIPELINE(AgBgCrCompV3)
CK_STAND_IN_PIPELINE(AgBgCrCompV4)
CK_STAND_IN_PIPELINE(AgBgCrCompV5)
CK_STAND_IN_PIPELINE(AgBgCrCompV6)
CK_STAND_IN_PIPELINE(AgBgCrCompAsync)
#undef CK_STAND_IN_PIPELINE

template <typename PipelineProblem, typename Policy = UniversalGemmPipelineAgBgCrPolicy, index_t LoadWaves = 4>
struct GemmPipelineAgBgCrWavelet : StandInLoop<PipelineProblem>
{
    using Problem = PipelineProblem;
};

} // namespace ck_tile
