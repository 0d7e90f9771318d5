// A library of plans on the CPU, for tests: what a plan does is told by the number of its engine.

#pragma once

#include "convolution.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward_native.h>
#include <ATen/ops/convolution_native.h>
#include <ATen/ops/ones.h>

#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

namespace tileseer::plans {

constexpr auto kDispatchKey = c10::DispatchKey::CPU;

inline std::string environment(const char* name)
{
    const char* value = std::getenv(name);
    return value ? value : "";
}

inline int64_t version()
{
    const std::string value = environment("TILESEER_TEST_VERSION");
    return value.empty() ? 91900 : std::stoll(value);
}
inline int64_t current_device() { return -1; }
inline bool capturing() { return !environment("TILESEER_TEST_CAPTURING").empty(); }

// A test tells the time.
inline double now()
{
    const std::string value = environment("TILESEER_TEST_SECONDS");
    return value.empty() ? 0.0 : std::stod(value);
}
inline void finish() {}

class Plan
{
    public:
    Plan(int64_t engine, const Convolution& convolution) : engine_(engine), convolution_(convolution)
    {
        if(engine == 30)
            throw PlanError("engine 30 cannot be built");
        workspace_bytes = engine == 32 ? int64_t{1} << 40 : 0;
    }

    void launch(const at::Tensor& x, const at::Tensor& w, const at::Tensor& y)
    {
        if(engine_ == 31 && environment("TILESEER_TEST_MEMORY").empty())
            TORCH_CHECK_WITH(OutOfMemoryError, false, "engine 31 finds no memory");
        if(engine_ == 33 && !environment("TILESEER_TEST_FAILING").empty())
            throw PlanError("engine 33 fails");
        if(engine_ == 34)
            TORCH_CHECK(false, "engine 34 meets an error of the program");
        const bool forward = convolution_.direction == kForward, data = convolution_.direction == kData;
        const auto stride = convolution_.of_axes(kStride), pad = convolution_.of_axes(kPad),
                   dilation = convolution_.of_axes(kDilation);
        const std::vector<int64_t> none(stride.size(), 0);
        const int64_t groups = convolution_.dims[kG];
        at::Tensor result;
        if(forward)
            result = at::native::convolution(x, w, std::nullopt, stride, pad, dilation, false, none, groups);
        else
        {
            const auto both = at::native::convolution_backward(
                y, x, w, std::nullopt, stride, pad, dilation, false, none, groups, {data, !data, false});
            result = data ? std::get<0>(both) : std::get<1>(both);
        }
        (forward ? y : data ? x : w).copy_(engine_ == 20 ? result.mul(2) : result);
    }

    int64_t workspace_bytes = 0;

    private:
    int64_t engine_;
    Convolution convolution_;
};

class Graph
{
    public:
    explicit Graph(const Convolution& convolution) : convolution_(convolution) {}

    std::vector<std::string> offered() const
    {
        std::vector<std::string> names;
        std::istringstream words(environment("TILESEER_TEST_PLANS"));
        for(std::string word; words >> word;)
            names.push_back(word);
        return names;
    }

    std::shared_ptr<Plan> build(const std::string& name) const
    {
        return std::make_shared<Plan>(std::strtoll(name.c_str() + 3, nullptr, 10), convolution_);
    }

    private:
    Convolution convolution_;
};

} // namespace tileseer::plans

// Computes a convolution of 8 channels in a thread that Python does not know, so many times, and waits for it.
extern "C" __attribute__((visibility("default"))) void convolve_in_thread(int64_t size, int64_t times)
{
    std::thread([=] {
        const at::AutoDispatchBelowADInplaceOrView below;
        const auto x = at::ones({1, 8, size, size}, at::kBFloat16).contiguous(at::MemoryFormat::ChannelsLast);
        const auto w = at::ones({8, 8, 3, 3}, at::kBFloat16).contiguous(at::MemoryFormat::ChannelsLast);
        for(int64_t time = 0; time < times; ++time)
            at::convolution(x, w, std::nullopt, {1, 1}, {0, 0}, {1, 1}, false, {0, 0}, 1);
    }).join();
}
