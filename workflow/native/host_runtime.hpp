// SPDX-License-Identifier: MIT
// A device made of the host's memory and a simulated clock, for tests. A kernel advances the clock, which it finds behind
// its stream, so every time is exact and the same on every machine.
#pragma once

#include "launcher.hpp"
#include "runtime_errors.hpp"

#include <cstdlib>
#include <cstring>
#include <string>

#define TILESEER_DEVICE

namespace tileseer {

// In microseconds: the time, and until when the clock of the compute units is lowered.
struct HostClock
{
    double now       = 0;
    double hot_until = 0;
};

inline HostClock& host_clock(const Tensors& tensors) { return *static_cast<HostClock*>(tensors.stream); }

class HostRuntime
{
    public:
    static constexpr const char* backend = "host";

    static constexpr std::size_t band_bytes = 4096;
    static constexpr bool checks_bands      = true;

    // Where the tensor behind a band begins.
    static char* placed(char* band, std::size_t, std::size_t) { return band + band_bytes; }

    static void share(void*, std::size_t, const char*, bool) {}
    static void unshare() {}

    void* stream() { return &clock_; }

    static void* allocate(std::size_t bytes)
    {
        if(bytes > memory_bytes)
        {
            throw OutOfMemory("no device memory for " + std::to_string(bytes) + " bytes");
        }
        return std::malloc(bytes > 0 ? bytes : 1);
    }

    static void release(void* memory) { std::free(memory); }

    static void fill(void* memory, int byte, std::size_t bytes) { std::memset(memory, byte, bytes); }

    static void copy_out(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

    template <typename F>
    static void for_each(std::int64_t count, F body)
    {
        for(std::int64_t i = 0; i < count; ++i)
        {
            body(i);
        }
    }

    static void synchronize() {}
    static void check_launch() {}
    static void forget_errors() {}
    static void close_gate() {}
    static void open_gate() {}
    static bool gate_timed_out() { return false; }

    void begin() { begin_ = clock_.now; }

    void end()
    {
        // Events take time, however short the kernel.
        clock_.now += 0.01;
        end_ = clock_.now;
    }

    double elapsed_ms() const { return (end_ - begin_) / 1000; }

    double clock_mhz() const { return clock_.now < clock_.hot_until ? 1500 : 2000; }
    void rest(double milliseconds) { clock_.now += 1000 * milliseconds; }
    double wall_ms() const { return clock_.now / 1000; }

    static ConvDeviceC device()
    {
        ConvDeviceC found{};
        std::strcpy(found.name, "host memory");
        std::strcpy(found.uuid, "00000000-0000-0000-0000-000000000000");
        std::strcpy(found.arch, "host");
        found.llc_bytes     = 1 << 16;
        found.memory_bytes  = memory_bytes;
        found.compute_units = 1;
        return found;
    }

    private:
    static constexpr std::size_t memory_bytes = std::size_t{1} << 28;

    HostClock clock_;
    double begin_ = 0;
    double end_   = 0;
};

} // namespace tileseer
