// SPDX-License-Identifier: MIT
// What can go wrong below the driver; each becomes a ConvCode.
#pragma once

#include <stdexcept>

namespace tileseer {

// The device reported an error: its context cannot be used any more.
struct DeviceFault : std::runtime_error
{
    using std::runtime_error::runtime_error;
};

struct OutOfMemory : std::runtime_error
{
    using std::runtime_error::runtime_error;
};

// The kernel refuses the problem, or its launch failed without harm to the context.
struct Refused : std::runtime_error
{
    using std::runtime_error::runtime_error;
};

struct BadArgument : std::runtime_error
{
    using std::runtime_error::runtime_error;
};

} // namespace tileseer
