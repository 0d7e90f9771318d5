// Stand-in for tests, see README.md.
#pragma once
#include "ck_tile/core.hpp"

namespace ck_tile {

template <typename In,
          typename Wei,
          typename Acc,
          typename Out,
          index_t Block,
          index_t TileH,
          index_t TileW,
          index_t FilterH,
          index_t FilterW,
          index_t StrideH,
          index_t StrideW,
          index_t DilationH,
          index_t DilationW,
          index_t PadH,
          index_t PadW,
          index_t Batches,
          index_t SubH,
          index_t SubW,
          index_t InVector,
          index_t OutVector>
struct DepthwiseConvFwdTraits
{
    static_assert(FilterH == 2 * PadH + 1 && FilterW == 2 * PadW + 1);
    static_assert(SubH <= TileH && SubW <= TileW);
};

template <typename Traits>
struct DepthwiseConvFwdPipeline
{
    struct Problem
    {
        struct UniversalTraits
        {
            static constexpr bool kPadM = true;
        };
    };
};

} // namespace ck_tile
