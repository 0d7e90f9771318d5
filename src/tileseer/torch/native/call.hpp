// What Python sees of the kernels: a call that a plan is chosen on, and the switch.

#pragma once

#include "convolution.hpp"

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tileseer {

// A convolution that a program calls, by its plan or by PyTorch's own function.
struct Call
{
    virtual ~Call() = default;
    // Names of the plans that the library offers, in its own order.
    virtual std::vector<std::string> offered() const = 0;
    // Bytes of workspace of a plan, which is built; `PlanError` where the library cannot.
    virtual int64_t build(const std::string& name) = 0;
    // Compute it by a plan, with all copies and the bias; by PyTorch's own function if the name is empty.
    virtual void compute(const std::string& name) = 0;
    // Queue a plan on operands of the caller's, channels last and aligned; it computes one of input, weight and output.
    virtual void launch(const std::string& name, const at::Tensor& x, const at::Tensor& w, const at::Tensor& y) = 0;
    // Whether the result of a plan has the sizes, the type and, where there is more than one value, the strides of
    // PyTorch's own.
    virtual bool has_layout(const std::string& name) = 0;

    Convolution convolution;
};

// What the kernels ask.
struct Asked
{
    // Whether this thread may ask: one that the program's interpreter does not know could wait for ever.
    std::function<bool()> may;
    // Told before a device computes its first convolution, so that it can say what is known.
    std::function<void(int64_t device)> begin;
    // The name of a plan, empty for PyTorch's own function; nothing where it cannot be chosen now.
    std::function<std::optional<std::string>(const std::shared_ptr<Call>&)> choose;
    // Told in the first calls of a shape that has to wait.
    std::function<void()> wait;
};

// Ask from now on, and keep so many shapes; what is known of shapes is forgotten.
void use(Asked asked, size_t bound);
// Run a shape by this plan from its first call on; an empty name is PyTorch's own function.
void know(const Convolution& convolution, const std::string& plan);
// Let the kernels run plans, or do nothing but PyTorch's own functions.
void turn(bool on);
// Number of shapes that are kept, and of those that have a plan.
std::pair<size_t, size_t> counts();
// The passes through a network that have begun, and the calls of each shape that is kept.
std::pair<int64_t, std::vector<std::pair<Convolution, int64_t>>> called();
// Version of the library of plans.
int64_t version();

} // namespace tileseer
