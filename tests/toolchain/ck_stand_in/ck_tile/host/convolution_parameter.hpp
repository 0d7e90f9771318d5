// Stand-in for tests, see README.md.
#pragma once
#include "ck_tile/core.hpp"
#include <vector>

namespace ck_tile::conv {

struct ConvParam
{
    index_t num_dim_spatial_, G_, N_, K_, C_;
    std::vector<index_t> filter_spatial_lengths_, input_spatial_lengths_, output_spatial_lengths_;
};

} // namespace ck_tile::conv
