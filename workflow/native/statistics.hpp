// SPDX-License-Identifier: MIT
// Statistics of samples that a few outliers do not move.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace tileseer {

inline double median(std::vector<double> values)
{
    const std::size_t middle = values.size() / 2;
    std::nth_element(values.begin(), values.begin() + middle, values.end());
    const double upper = values[middle];
    if(values.size() % 2 == 1)
    {
        return upper;
    }
    return (upper + *std::max_element(values.begin(), values.begin() + middle)) / 2;
}

// Relative standard error of the median, from the median absolute deviation as for a normal distribution;
// -1 with fewer than two samples.
inline double noise(const std::vector<double>& values)
{
    if(values.size() < 2)
    {
        return -1;
    }
    const double center = median(values);
    std::vector<double> distances;
    distances.reserve(values.size());
    for(const double value : values)
    {
        distances.push_back(std::abs(value - center));
    }
    return 1.2533 * 1.4826 * median(std::move(distances)) / (center * std::sqrt(static_cast<double>(values.size())));
}

} // namespace tileseer
