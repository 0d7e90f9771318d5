// SPDX-License-Identifier: MIT
// How launches reach the emulated GPU, which is Python (packages/tileseer_emulated/src/tileseer_emulated/driver.py).
#pragma once

#include <cstddef>
#include <string>

namespace tileseer {

// Room for the text of a fault.
inline constexpr int why_bytes = 512;

struct EmulatedDevice
{
    // Takes a launch: a kernel's name, the bundle it is in, grid and block, bytes of dynamic LDS, addresses of its
    // arguments, which are read now. A number for `run`, or -1 with the reason in `why`.
    int (*bind)(const char* name, const void* bundle, const unsigned int* grid_and_block, std::size_t shared,
                void** arguments, char* why);
    // Executes a launch. The number of instructions, or -1 with the reason in `why`.
    long (*run)(int launch, char* why);
    void (*allocated)(void* address, std::size_t bytes);
    void (*released)(void* address);
    // A tensor in memory that was not `allocated`: what a kernel accesses beside it is a fault that has its name.
    void (*shared)(void* address, std::size_t bytes, const char* name, int is_input);
    // The host has written there. 0, or -1 with the reason in `why` if that began in an allocation and went beyond it.
    int (*written)(const void* address, std::size_t bytes, char* why);
};

// The installed executor; all null without one.
const EmulatedDevice& emulated_device();

// Executes all that was launched. What went wrong since the last call, or an empty text.
std::string run_emulated_launches();

} // namespace tileseer
