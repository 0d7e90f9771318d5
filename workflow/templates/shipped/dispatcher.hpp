// SPDX-License-Identifier: MIT
// One operation: which kernel runs a problem, and its launch.
#pragma once

#include "kernel.hpp"
#include "tileseer/convolution.hpp"
#include "tuned.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace tileseer {

// A problem as kernels take it. `direction`: a ConvDirection.
ConvProblemC with_direction(const Problem& problem, int direction, std::int32_t split_k = 1);

// The dimensions that differ from those of a 1x1 convolution, as the option --problem of tileseer reads them.
std::string text_of(const Problem& problem);

class Dispatcher
{
    public:
    // All candidates that can run a problem by the model's rules: its pick, and the others in its order.
    using Ranked = std::vector<Choice> (*)(const Problem& problem);

    Dispatcher(const char* operation, int direction, Ranked ranked, const std::vector<const Kernel*>& kernels);

    Choice choice(const Problem& problem);
    std::size_t workspace_bytes(const Problem& problem);
    // (a, b) are read and c is written, in the order of tileseer_conv.h.
    void convolve(const Problem& problem, const void* a, const void* b, void* c, Workspace workspace, Stream stream);

    private:
    struct Candidate
    {
        const Kernel* kernel;
        std::int32_t split_k;
    };

    // The candidates of a problem. The first is launched; if there are more, they are timed before.
    struct Plan
    {
        std::vector<Candidate> candidates;
        std::size_t workspace_bytes = 0;
    };

    Plan& plan(const Problem& problem);
    Plan made(const Problem& problem);
    void time(Plan& plan, const Problem& problem, const Tensors& tensors);
    void launch(const Candidate& candidate, const Problem& problem, const Tensors& tensors) const;
    std::string about(const Problem& problem) const;
    const Candidate* remembered(const std::vector<Candidate>& candidates, const Problem& problem);

    const char* operation_;
    int direction_;
    std::map<std::string, const Kernel*> kernels_;
    Ranked ranked_;
    std::mutex mutex_;
    std::map<TunedDims, Plan> plans_;
    std::map<std::string, TunedChoices> files_;
    TunedChoices* tuned_ = nullptr; // the one of the options; null without one
};

} // namespace tileseer
