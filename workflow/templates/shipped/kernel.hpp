// SPDX-License-Identifier: MIT
// A kernel as the table of an operation lists it.
#pragma once

#include "launcher.hpp"

#include <cstdint>
#include <string>

namespace tileseer {

struct Kernel
{
    const char* name;
    bool (*supports)(const ConvProblemC& problem, std::string& why);
    std::int64_t (*workspace_bytes)(const ConvProblemC& problem);
    // Queues a whole convolution with all that it needs (zeroing, second stage); may throw.
    void (*launch)(const ConvProblemC& problem, const Tensors& tensors);
};

} // namespace tileseer
