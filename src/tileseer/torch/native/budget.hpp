// How long plans may be chosen: an allowance for the first pass through a network, and then a share of the program's time.

#pragma once

#include "convolution.hpp"

#include <algorithm>
#include <optional>
#include <unordered_map>

namespace tileseer {

// Seconds for shapes of a first pass. The first steps of PyTorch's benchmark mode took up to 29 s (H200, 24 networks).
constexpr double kAllowanceSeconds = 30.0;
// Of the program's time, for all other shapes: with the last one, which may cost more than was left, a twentieth.
constexpr double kShare = 0.03;
constexpr double kLeastCostSeconds = 1e-3;

// A layer at any size: what a pass through a network calls once at each of its sizes.
inline Convolution layer_of(Convolution convolution)
{
    convolution.dims[kN] = 0;
    std::fill_n(convolution.dims.begin() + kImage, 3, 0);
    return convolution;
}

class Budget
{
    public:
    // Whether a new shape is of the layer that passes begin with: the first one that was called.
    bool begins_pass(const Convolution& convolution)
    {
        const Convolution layer = layer_of(convolution);
        if(!first_)
            first_ = layer;
        return layer == *first_;
    }

    // Count a call. A pass has begun where the first layer comes again after others, at whatever size.
    void call(bool begins_pass)
    {
        pass_ += begins_pass && others_came_;
        others_came_ = !begins_pass;
    }

    // So many passes have begun.
    int64_t passes() const { return pass_ + 1; }

    // Whether the allowance is for a new shape: its layer was not called in an earlier pass.
    bool is_free(const Convolution& convolution)
    {
        return layers_.try_emplace(layer_of(convolution), pass_).first->second == pass_;
    }

    // Whether a shape may be chosen for at this time, in seconds. `work`: about the seconds that its calls took.
    bool allows(bool free, double work, double now)
    {
        if(!began_)
            began_ = now;
        if(free && allowance_used_ < kAllowanceSeconds)
            return true;
        most_work_ = std::max(most_work_, work);
        // Without an estimate of its cost: a shape may cost more, and the next one waits until that is made up for.
        const double left = kShare * (now - *began_ - allowance_used_ - share_used_) - share_used_;
        // The shape that took the most time goes first; one with less, when there is enough for both.
        const double cost = std::max(kLeastCostSeconds, (allowance_used_ + share_used_) / std::max<int64_t>(chosen_, 1));
        return left >= 0.0 && work * (1.0 + left / cost) >= most_work_;
    }

    // Leave out seconds in which no plan could run.
    void leave_out(double seconds)
    {
        if(began_)
            *began_ += seconds;
    }

    // Count the seconds that were spent on a shape; the others that wait have this much work at most.
    void spend(bool free, double seconds, double most_work)
    {
        (free ? allowance_used_ : share_used_) += seconds;
        ++chosen_;
        most_work_ = most_work;
    }

    private:
    std::optional<Convolution> first_;
    std::unordered_map<Convolution, int64_t, Hash> layers_; // the pass in which each was first called
    int64_t pass_ = 0, chosen_ = 0;
    bool others_came_ = false;
    std::optional<double> began_;
    double allowance_used_ = 0.0, share_used_ = 0.0, most_work_ = 0.0;
};

} // namespace tileseer
