// Stand-in for tests, see README.md.
#pragma once
#include "ck_tile/core.hpp"

namespace ck_tile {

template <typename AsDataType,
          typename BsDataType,
          typename DsDataType,
          typename AccDataType,
          typename Output,
          typename DsLayout,
          typename ELayout,
          typename CDElementwise,
          index_t MPerBlock,
          index_t NPerBlock,
          index_t MWave,
          index_t NWave,
          index_t MPerXdl,
          index_t NPerXdl,
          index_t KPerXdl,
          bool TransposeC,
          index_t NumWaveGroups    = 1,
          bool FixedVectorSize     = false,
          index_t VectorSizeC      = 1,
          index_t BlockedXdlN      = 1,
          bool DoubleSmemBuffer    = false>
struct CShuffleEpilogueProblem
{
    using ODataType = Output;
};

template <typename Problem>
struct CShuffleEpilogue
{
    using ODataType = typename Problem::ODataType;
};

template <typename AsDataType,
          typename BsDataType,
          typename DsDataType,
          typename AccDataType,
          typename Output,
          typename DsLayout,
          typename CLayout,
          typename CDElementwise,
          index_t MPerBlock,
          index_t NPerBlock,
          bool PadM,
          bool PadN,
          index_t MPerXdl,
          index_t NPerXdl,
          index_t KPerXdl,
          bool TransposeC,
          bool UseRawStore = true>
struct DefaultGemm2DEpilogueProblem
{
    using ODataType = Output;
};

template <typename Problem>
struct DefaultGemm2DEpilogue
{
    using ODataType = typename Problem::ODataType;
};

} // namespace ck_tile
