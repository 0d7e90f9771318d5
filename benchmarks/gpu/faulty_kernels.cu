// SPDX-License-Identifier: MIT
// Kernels for a real GPU that compute the right forward convolution, the slow way, and then misbehave: what the harness
// has to survive. Compile as a module: -DTILESEER_CUDA, -I workflow/native.
#include "gpu_runtime.hpp"

#include "reference.hpp"

#include <csignal>
#include <stdexcept>
#include <string>

namespace {

using namespace tileseer;

__global__ void convolve(Shape shape, std::int64_t count, const Bf16::Bits* input, const Bf16::Bits* weight,
                         Bf16::Bits* output)
{
    const std::int64_t step  = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for(std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
    {
        float value;
        ForwardReference<Bf16>{shape, input, weight, &value - i, 1}(i);
        output[i] = Bf16::from_float(value);
    }
}

// One element, half-way through the output, gets other bits.
__global__ void disturb(Bf16::Bits* at, Bf16::Bits flip) { *at ^= flip; }

__global__ void never_ends(volatile int* flag)
{
    while(*flag != 12345)
    {
    }
}

__global__ void writes_to(int* nowhere) { *nowhere = 1; }

template <typename D>
struct Faulty
{
    static constexpr const char* name = D::name;
    static constexpr int direction = CONV_FORWARD, ndim = 3, dtype = CONV_BF16;

    static bool supports(const ConvProblemC&, std::string&) { return true; }
    static std::int64_t workspace_bytes(const ConvProblemC&) { return 256; }

    static void launch(const ConvProblemC& problem, const Tensors& t)
    {
        const Shape shape(problem);
        const auto stream = static_cast<TILESEER_GPU(Stream_t)>(t.stream);
        auto* output      = static_cast<Bf16::Bits*>(t.c);
        convolve<<<1024, 256, 0, stream>>>(shape, shape.outputs(), static_cast<const Bf16::Bits*>(t.a),
                                           static_cast<const Bf16::Bits*>(t.b), output);
        D::fault(output + shape.outputs() / 2, static_cast<int*>(t.workspace), stream);
    }

    static ConvResourcesC resources() { return function_resources(reinterpret_cast<const void*>(convolve), 256, 0); }
};

using Stream = TILESEER_GPU(Stream_t);

struct Right
{
    static constexpr const char* name = "right";
    static void fault(Bf16::Bits*, int*, Stream) {}
};

struct OneWrong
{
    static constexpr const char* name = "one_wrong_element";
    static void fault(Bf16::Bits* at, int*, Stream stream) { disturb<<<1, 1, 0, stream>>>(at, 0x0100); }
};

struct NotFinite
{
    static constexpr const char* name = "one_element_not_finite";
    static void fault(Bf16::Bits* at, int*, Stream stream) { disturb<<<1, 1, 0, stream>>>(at, 0x7f80); }
};

struct Throws
{
    static constexpr const char* name = "throws";
    static void fault(Bf16::Bits*, int*, Stream) { throw std::runtime_error("no, not this one"); }
};

// More shared memory than a block may have: the launch is refused, the context lives on.
struct LaunchRefused
{
    static constexpr const char* name = "launch_refused";
    static void fault(Bf16::Bits* at, int*, Stream stream) { disturb<<<1, 1, 1 << 20, stream>>>(at, 0); }
};

struct Segfault
{
    static constexpr const char* name = "segfault_on_the_host";
    static void fault(Bf16::Bits*, int*, Stream) { std::raise(SIGSEGV); }
};

struct IllegalAddress
{
    static constexpr const char* name = "illegal_address";
    static void fault(Bf16::Bits*, int*, Stream stream) { writes_to<<<1, 1, 0, stream>>>(reinterpret_cast<int*>(64)); }
};

// One number behind the workspace: nothing shows in the result.
struct StoresBehind
{
    static constexpr const char* name = "stores_behind";
    static void fault(Bf16::Bits*, int* workspace, Stream stream) { writes_to<<<1, 1, 0, stream>>>(workspace + 64); }
};

struct Hangs
{
    static constexpr const char* name = "hangs";
    static void fault(Bf16::Bits*, int* workspace, Stream stream) { never_ends<<<1, 1, 0, stream>>>(workspace); }
};

const Registration<Faulty<Right>> right;
const Registration<Faulty<OneWrong>> one_wrong;
const Registration<Faulty<NotFinite>> not_finite;
const Registration<Faulty<Throws>> throws;
const Registration<Faulty<LaunchRefused>> refused;
const Registration<Faulty<Segfault>> segfault;
const Registration<Faulty<IllegalAddress>> illegal_address;
const Registration<Faulty<StoresBehind>> stores_behind;
const Registration<Faulty<Hangs>> hangs;

} // namespace
