// Stand-in for tests, see README.md.
#pragma once
#include "ck_tile/core.hpp"

namespace ck_tile {

enum class StreamKReductionStrategy { Atomic, Tree, Linear };

template <typename Shape, StreamKReductionStrategy Strategy, bool Persistent>
struct StreamKTilePartitioner
{
    static constexpr index_t MPerBlock = Shape::kM;
    static constexpr index_t NPerBlock = Shape::kN;
    static constexpr index_t KPerBlock = Shape::kK;
};

} // namespace ck_tile
