// SPDX-License-Identifier: MIT
// Kernels for the host backend that behave and misbehave. Each computes the right convolution, the slow way, and says
// how long that took; what is wrong with it is in its `disturb`.
#include "host_runtime.hpp"

#include "driver.hpp"

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

using namespace tileseer;

// Between -0.5 and 0.5, the same in every process.
double jitter()
{
    static std::uint64_t state = 1;
    state                      = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<double>(state >> 40) / (1 << 24) - 0.5;
}

float reference_element(const ConvProblemC& problem, const Tensors& t, std::int64_t i)
{
    const Shape shape(problem);
    const auto* a = static_cast<const float*>(t.a);
    const auto* b = static_cast<const float*>(t.b);
    float value   = 0;
    switch(problem.direction)
    {
    case CONV_FORWARD: ForwardReference<Fp32>{shape, a, b, &value - i, 1}(i); break;
    case CONV_BWD_DATA: BackwardDataReference<Fp32>{shape, a, b, &value - i, 1}(i); break;
    default: BackwardWeightReference<Fp32>{shape, a, b, &value - i, 1}(i); break;
    }
    return value;
}

// D has a name, a time in microseconds for launch number n, and a disturbance.
template <typename D, int Direction = CONV_FORWARD>
struct Fake
{
    static constexpr const char* name = D::name;
    static constexpr int direction = Direction, ndim = 3, dtype = CONV_FP32;

    static bool supports(const ConvProblemC& problem, std::string& why)
    {
        why = "C is above 64";
        return problem.C <= 64;
    }

    static std::int64_t workspace_bytes(const ConvProblemC&) { return D::workspace; }

    static void launch(const ConvProblemC& problem, const Tensors& tensors)
    {
        static int launches = 0;
        const Sizes sizes(problem);
        for(std::int64_t i = 0; i < sizes.c; ++i)
        {
            static_cast<float*>(tensors.c)[i] = reference_element(problem, tensors, i);
        }
        D::disturb(static_cast<float*>(tensors.c), sizes.c, launches);
        HostClock& clock = host_clock(tensors);
        if(D::hot_for > 0)
        {
            clock.hot_until = clock.now + D::hot_for;
        }
        clock.now += D::microseconds(launches++);
    }

    static ConvResourcesC resources() { return {32, 1024, 0, 256, 8}; }
};

// The right result, and then one more byte in another tensor.
template <typename D, int Offset>
struct Spoils : Fake<D>
{
    static void launch(const ConvProblemC& problem, const Tensors& tensors)
    {
        Fake<D>::launch(problem, tensors);
        char* tensor = D::workspace > 0 ? static_cast<char*>(tensors.workspace) : const_cast<char*>(static_cast<const char*>(tensors.b));
        tensor[Offset] ^= 1;
    }
};

struct Good
{
    static constexpr const char* name         = "good";
    static constexpr std::int64_t workspace   = 0;
    static constexpr double hot_for           = 0;
    static void disturb(float*, std::int64_t, int) {}
    static double microseconds(int) { return 10 * (1 + 0.01 * jitter()); }
};

struct Line : Good
{
    static constexpr const char* name = "line";
};

// A kernel of one dimension, which no problem of the interface has.
struct OneDimensional : Fake<Line>
{
    static constexpr int ndim = 1;
};

struct GoodData : Good
{
    static constexpr const char* name = "good_bwd_data";
};

struct GoodWeight : Good
{
    static constexpr const char* name       = "good_bwd_weight";
    static constexpr std::int64_t workspace = 128;
};

struct Slow : Good
{
    static constexpr const char* name = "slow";
    static double microseconds(int) { return 100; }
};

// Leaves the device with a low clock for ten milliseconds, in which everything would take longer.
struct Heats : Good
{
    static constexpr const char* name = "heats";
    static constexpr double hot_for   = 10000;
};

// Slower by half until it is warm, then steady.
struct WarmsUp : Good
{
    static constexpr const char* name = "warms_up";
    static double microseconds(int launch) { return launch < 100 ? 15 - 0.05 * launch : 10; }
};

// As steady as can be within a process, up to 2 % slower in another one.
struct Placed : Good
{
    static constexpr const char* name = "placed";
    static double microseconds(int) { return 10 * (1 + 0.02 * std::fmod(0.618 * getpid(), 1.0)); }
};

struct PlacedToo : Placed
{
    static constexpr const char* name = "placed_too";
};

// 5 % slower after every thousand launches.
struct Drifts : Good
{
    static constexpr const char* name = "drifts";
    static double microseconds(int launch) { return 10 * (1 + 0.05 * (launch / 1000)); }
};

struct Noisy : Good
{
    static constexpr const char* name = "noisy";
    static double microseconds(int) { return 10 * (1 + 0.9 * jitter()); }
};

struct Segfault : Good
{
    static constexpr const char* name = "segfault";
    static void disturb(float*, std::int64_t, int) { std::raise(SIGSEGV); }
};

// Crashes in the first process that launches it, and never again: a file remembers.
struct SegfaultOnce : Good
{
    static constexpr const char* name = "segfault_once";
    static void disturb(float*, std::int64_t, int)
    {
        const char* path = std::getenv("FAKE_KERNEL_MARK");
        if(path != nullptr && access(path, F_OK) != 0)
        {
            std::fclose(std::fopen(path, "w"));
            std::raise(SIGSEGV);
        }
    }
};

struct Hangs : Good
{
    static constexpr const char* name = "hangs";
    static void disturb(float*, std::int64_t, int)
    {
        for(;;)
        {
            pause();
        }
    }
};

struct Exits : Good
{
    static constexpr const char* name = "exits";
    static void disturb(float*, std::int64_t, int) { std::exit(0); }
};

// Garbage where people print; it must do no harm.
struct Prints : Good
{
    static constexpr const char* name = "prints";
    static void disturb(float*, std::int64_t, int)
    {
        std::printf("{\"done\": {\"code\": 0}}\n\xff\xfe garbage");
        std::fflush(stdout);
    }
};

// Garbage in every pipe that is open, also the one for replies.
struct Scribbles : Good
{
    static constexpr const char* name = "scribbles";
    static void disturb(float*, std::int64_t, int)
    {
        for(int file = 3; file < 64; ++file)
        {
            [[maybe_unused]] const auto written = write(file, "garbage\n", 8);
        }
    }
};

// An answer in every pipe that is open, as a library would give that speaks the same language.
struct Forges : Good
{
    static constexpr const char* name = "forges";
    static void disturb(float*, std::int64_t, int)
    {
        const std::string answer = "{\"done\": {\"code\": 0, \"error\": \"\", \"check\": null, \"result\": {\"median_ms\": 1e-9}}}\n";
        for(int file = 3; file < 1024; ++file)
        {
            [[maybe_unused]] const auto written = write(file, answer.data(), answer.size());
        }
        pause();
    }
};

// Leaves a process in a session of its own, that holds all that is open, and dies.
template <bool Dies>
struct Leaves : Good
{
    static constexpr const char* name = Dies ? "leaves_and_dies" : "leaves_and_hangs";
    static void disturb(float*, std::int64_t, int)
    {
        if(fork() == 0)
        {
            setsid();
            if(fork() != 0)
            {
                _exit(0);
            }
            std::FILE* mark = std::fopen(std::getenv("FAKE_KERNEL_MARK"), "a");
            std::fprintf(mark, "%d\n", getpid());
            std::fclose(mark);
            pause();
        }
        sleep(1);
        if(Dies)
        {
            std::raise(SIGSEGV);
        }
        pause();
    }
};

// Takes all the memory that there is.
struct Eats : Good
{
    static constexpr const char* name = "eats";
    static void disturb(float*, std::int64_t, int)
    {
        for(;;)
        {
            std::memset(new char[1 << 24], 1, 1 << 24);
        }
    }
};

struct Shouts : Good
{
    static constexpr const char* name = "shouts";
    static void disturb(float*, std::int64_t, int)
    {
        throw std::runtime_error("\x1b]0;owned\x07\x1b[2J\x7f");
    }
};

// What a broken clock gives.
struct Nowhere : Good
{
    static constexpr const char* name = "nowhere";
    static double microseconds(int) { return std::nan(""); }
};

struct Wrong : Good
{
    static constexpr const char* name = "wrong";
    static void disturb(float* c, std::int64_t count, int) { c[count / 2] += 0.01f; }
};

struct Unwritten : Good
{
    static constexpr const char* name = "unwritten";
    static void disturb(float* c, std::int64_t count, int launch)
    {
        // The result of the first launch is checked: put back what was there before.
        if(launch == 0)
        {
            std::memset(c + count / 2, 0xff, sizeof(float));
        }
    }
};

// Store beside the result, 800 bytes, in the first launch alone: the memory of the timed ones is all in use.
template <std::int64_t Behind>
struct StoresBeside : Good
{
    static constexpr const char* name = Behind > 0 ? "stores_behind" : "stores_before";
    static void disturb(float* c, std::int64_t count, int launch)
    {
        if(launch == 0)
        {
            c[Behind > 0 ? count + Behind - 1 : Behind] = 0;
        }
    }
};

struct StoresToOperand : Good
{
    static constexpr const char* name = "stores_to_operand";
};

struct StoresToWorkspace : Good
{
    static constexpr const char* name       = "stores_behind_workspace";
    static constexpr std::int64_t workspace = 12;
};

struct Throws : Good
{
    static constexpr const char* name = "throws";
    static void disturb(float*, std::int64_t, int) { throw std::runtime_error("no, \"not\" this\none"); }
};


const Registration<Fake<Good>> good;
const Registration<OneDimensional> line;
const Registration<Fake<GoodData, CONV_BWD_DATA>> good_data;
const Registration<Fake<GoodWeight, CONV_BWD_WEIGHT>> good_weight;
const Registration<Fake<Slow>> slow;
const Registration<Fake<Heats>> heats;
const Registration<Fake<WarmsUp>> warms_up;
const Registration<Fake<Placed>> placed;
const Registration<Fake<PlacedToo>> placed_too;
const Registration<Fake<Drifts>> drifts;
const Registration<Fake<Noisy>> noisy;
const Registration<Fake<Segfault>> segfault;
const Registration<Fake<SegfaultOnce>> segfault_once;
const Registration<Fake<Hangs>> hangs;
const Registration<Fake<Exits>> exits;
const Registration<Fake<Prints>> prints;
const Registration<Fake<Scribbles>> scribbles;
const Registration<Fake<Wrong>> wrong;
const Registration<Fake<Unwritten>> unwritten;
const Registration<Fake<Throws>> throws;
const Registration<Fake<StoresBeside<1>>> stores_behind;
const Registration<Fake<StoresBeside<-2>>> stores_before;
const Registration<Spoils<StoresToOperand, 8>> stores_to_operand;
const Registration<Spoils<StoresToWorkspace, 12>> stores_behind_workspace;
const Registration<Fake<Forges>> forges;
const Registration<Fake<Leaves<true>>> leaves_and_dies;
const Registration<Fake<Leaves<false>>> leaves_and_hangs;
const Registration<Fake<Eats>> eats;
const Registration<Fake<Shouts>> shouts;
const Registration<Fake<Nowhere>> nowhere;

} // namespace
