// Kernels of aten::convolution and aten::convolution_backward for one device: convolutions by chosen plans of a library.
//
// Autograd, autocast, functorch, torch.compile, exports and counters stand above them, and no module is touched. A plan
// is chosen, by a function in Python, at the first call of a shape that the budget allows; until then, and for whatever
// has no plan, PyTorch's own function runs.

#include "budget.hpp"
#include "call.hpp"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_convolution_native.h>
#include <ATen/ops/convolution_backward_native.h>
#include <ATen/ops/convolution_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "plans.hpp" // cuDNN's, or what a test has in its place

#include <algorithm>
#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace tileseer {

using at::IntArrayRef;
using at::Tensor;
using plans::Graph;
using plans::Plan;
using Gradients = std::tuple<Tensor, Tensor, Tensor>;

constexpr int64_t kWarmups = 3; // so often a shape that waits asks for another step before a graph is captured
constexpr int64_t kRest = 8;            // calls after a first failure; twice as many after each other one

namespace {

void warn_once(const std::string& text)
{
    static std::mutex mutex;
    static std::unordered_set<std::string> warned;
    std::lock_guard<std::mutex> lock(mutex);
    if(warned.insert(text).second)
        TORCH_WARN("tileseer: ", text, "; PyTorch's own choice runs instead");
}

// While it lives, PyTorch's own function computes what this thread calls by the inner operator.
class Within
{
    public:
    Within() : before_(std::exchange(any(), true)) {}
    Within(const Within&) = delete;
    ~Within() { any() = before_; }
    static bool& any()
    {
        static thread_local bool within = false;
        return within;
    }

    private:
    bool before_;
};

// A call with its operands.
class TimedCall : public Call
{
    public:
    TimedCall(
        const Convolution& of, const at::Device& device, std::function<Tensor()> pytorch,
        std::function<Tensor(Plan&)> planned)
        : device_(device), pytorch_(std::move(pytorch)), planned_(std::move(planned)), graph_(of)
    {
        convolution = of;
    }

    std::vector<std::string> offered() const override
    {
        const c10::DeviceGuard guard(device_);
        return graph_.offered();
    }

    int64_t build(const std::string& name) override { return plan(name)->workspace_bytes; }
    void compute(const std::string& name) override { run(name); }

    std::shared_ptr<Plan> plan(const std::string& name)
    {
        const c10::DeviceGuard guard(device_);
        auto& built = plans_[name];
        if(!built)
            built = graph_.build(name);
        return built;
    }

    Tensor run(const std::string& name)
    {
        const at::AutoDispatchBelowADInplaceOrView below;
        const c10::DeviceGuard guard(device_);
        if(name.empty())
            return pytorch_();
        const Tensor result = planned_(*plan(name));
        TORCH_CHECK(result.defined(), "the operands are not aligned");
        return result;
    }

    void launch(const std::string& name, const Tensor& x, const Tensor& w, const Tensor& y) override
    {
        const at::AutoDispatchBelowADInplaceOrView below;
        const c10::DeviceGuard guard(device_);
        plan(name)->launch(x, w, y);
    }

    bool has_layout(const std::string& name) override
    {
        if(!own_)
            own_ = layout_of(run(""));
        return layout_of(run(name)) == *own_;
    }

    private:
    using Layout = std::tuple<std::vector<int64_t>, std::vector<int64_t>, at::ScalarType>;
    static Layout layout_of(const Tensor& tensor)
    {
        auto strides = tensor.strides().vec();
        for(int64_t axis = 0; axis < tensor.dim(); ++axis)
            if(tensor.size(axis) == 1)
                strides[axis] = 0; // an axis of one value has no stride
        return {tensor.sizes().vec(), strides, tensor.scalar_type()};
    }

    at::Device device_;
    std::function<Tensor()> pytorch_;
    std::function<Tensor(Plan&)> planned_;
    Graph graph_;
    std::unordered_map<std::string, std::shared_ptr<Plan>> plans_;
    std::optional<Layout> own_; // of PyTorch's result
};

// What is known of a shape.
struct Shape
{
    Convolution convolution;
    std::shared_ptr<Plan> plan; // null where PyTorch's own function runs it
    bool chosen = false, choosing = false, begins_pass = false, is_free = false;
    int64_t calls = 0;
    int64_t failures = 0, rests_until = 0; // the call from which on its plan is tried or chosen again
    double seconds = 0.0; // of a call, about

    // About the seconds that its calls took while it waits for a plan.
    double work() const { return chosen ? 0.0 : calls * seconds; }
    void rest() { rests_until = calls + (kRest << std::min<int64_t>(failures++, 40)); }
};

std::atomic<bool> is_on{false};

// The shapes that were called, the last used first, up to a bound.
class Shapes
{
    public:
    // The plan of a shape, or null: PyTorch's own function. `call` describes the call where it has to be chosen now.
    template <typename MakeCall>
    std::shared_ptr<Plan> plan(const Convolution& convolution, const MakeCall& make_call)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        Shape* shape = &touch(convolution);
        budget_.call(shape->begins_pass);
        if(!shape->calls++)
            shape->is_free = budget_.is_free(convolution);
        const bool is_free = shape->is_free;
        const auto is_settled = [&] { return shape->chosen || shape->choosing || shape->calls < shape->rests_until; };
        if(is_settled())
            return usable(*shape);
        if(plans::capturing())
        {
            warn_once("a convolution of a new shape was called while a CUDA graph is captured, where nothing can be timed "
                      "or built; run the step before it is captured");
            return nullptr;
        }
        const auto asked = asked_;
        const bool may_ask = asked->may();
        if(may_ask && begun_.insert(convolution.device).second)
        {
            lock.unlock();
            try
            {
                asked->begin(convolution.device);
            }
            catch(const std::exception& error)
            {
                warn_once("nothing is known of a device (" + std::string(error.what()) + ")");
            }
            lock.lock();
            shape = &touch(convolution);
            if(is_settled())
                return usable(*shape);
        }
        std::optional<std::string> name;
        if(const auto found = known_.find(convolution); found != known_.end())
            name = found->second;
        else if(!may_ask)
        {
            warn_once("a convolution of a new shape was called in a thread that is none of Python's, where nothing can be "
                      "chosen; call it in a thread of Python's first");
            return nullptr;
        }
        else if(!budget_.allows(is_free, shape->work(), plans::now()))
        {
            const bool waits = shape->calls <= kWarmups;
            lock.unlock();
            if(waits)
                asked->wait();
            return nullptr;
        }
        const bool is_known = name.has_value();
        shape->choosing = true;
        lock.unlock();
        plans::finish(); // what the program has queued is its own time
        const double begin = plans::now();
        std::shared_ptr<Plan> plan;
        try
        {
            // No mode of the program is on: no tracing, no counting, no autocast, no transform.
            const c10::impl::ForceDispatchKeyGuard plain(c10::default_included_set, c10::default_excluded_set);
            const Within within;
            const auto call = make_call();
            if(!name)
                name = asked->choose(call);
            if(name && !name->empty())
                plan = call->plan(*name);
        }
        catch(const std::exception& error)
        {
            name.reset();
            warn_once("the plan of a shape cannot be used (" + std::string(error.what()) + ")");
        }
        lock.lock();
        if(asked != asked_)
            return nullptr;
        shape = &touch(convolution);
        shape->choosing = false;
        shape->chosen = name.has_value();
        shape->plan = plan;
        if(!name)
            shape->rest();
        if(!is_known)
        {
            double most_work = 0.0;
            for(const Shape& other : recent_)
                most_work = std::max(most_work, other.work());
            budget_.spend(is_free, plans::now() - begin, most_work);
        }
        return plan;
    }

    // Run this shape by PyTorch's own function for a while, after its plan failed.
    void rest(const Convolution& convolution)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        touch(convolution).rest();
    }

    void know(const Convolution& convolution, const std::string& name)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        known_[convolution] = name;
    }

    void use(Asked asked, size_t bound)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        asked_ = std::make_shared<const Asked>(std::move(asked));
        bound_ = bound;
        begun_.clear();
        budget_ = {};
        known_.clear();
        places_.clear();
        recent_.clear();
    }

    void turn(bool on)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if(off_since_ && on)
            budget_.leave_out(plans::now() - *off_since_);
        if(on || !off_since_)
            off_since_ = on ? std::nullopt : std::optional<double>(plans::now());
    }

    std::pair<size_t, size_t> counts()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        size_t planned = 0;
        for(const Shape& shape : recent_)
            planned += shape.plan && shape.calls >= shape.rests_until;
        return {recent_.size(), planned};
    }

    std::pair<int64_t, std::vector<std::pair<Convolution, int64_t>>> called()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        std::vector<std::pair<Convolution, int64_t>> calls;
        for(const Shape& shape : recent_)
            calls.emplace_back(shape.convolution, shape.calls);
        return {budget_.passes(), calls};
    }

    private:
    // The plan of a shape that has one and need not rest.
    std::shared_ptr<Plan> usable(const Shape& shape)
    {
        if(!shape.plan || shape.calls < shape.rests_until)
            return nullptr;
        // A captured graph launches the kernels of the plan as long as the graph lives.
        if(plans::capturing())
            pinned_.insert(shape.plan);
        return shape.plan;
    }

    Shape& touch(const Convolution& convolution)
    {
        const auto place = places_.find(convolution);
        if(place != places_.end())
        {
            recent_.splice(recent_.begin(), recent_, place->second);
            return recent_.front();
        }
        recent_.emplace_front();
        Shape& shape = recent_.front();
        shape.convolution = convolution;
        shape.seconds = seconds_of(convolution);
        shape.begins_pass = budget_.begins_pass(convolution);
        places_[convolution] = recent_.begin();
        if(recent_.size() > bound_)
        {
            places_.erase(recent_.back().convolution);
            recent_.pop_back();
        }
        return recent_.front();
    }

    std::mutex mutex_;
    std::shared_ptr<const Asked> asked_;
    size_t bound_ = 1;
    std::unordered_set<int64_t> begun_; // devices
    Budget budget_;
    std::optional<double> off_since_;
    std::list<Shape> recent_;
    std::unordered_map<Convolution, std::list<Shape>::iterator, Hash> places_;
    std::unordered_map<Convolution, std::string, Hash> known_;
    std::unordered_set<std::shared_ptr<Plan>> pinned_;
};

Shapes& shapes()
{
    static auto* all = new Shapes(); // never freed: at the end of a process the library of plans may be gone
    return *all;
}

at::MemoryFormat channels_last(const Tensor& tensor)
{
    return tensor.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
}

// Why a call runs by PyTorch's own function, or null.
const char* unusable(const Tensor& x, const Tensor& w)
{
    const auto& context = at::globalContext();
    const at::ScalarType dtype = x.scalar_type();
    if(dtype != at::kBFloat16 && dtype != at::kHalf)
        return "a convolution's data type is neither bfloat16 nor float16";
    const at::MemoryFormat last = channels_last(x);
    if(x.suggest_memory_format() != last && w.suggest_memory_format() != last)
        return "neither input nor weight of a convolution is channels last";
    if(!context.userEnabledCuDNN())
        return "torch.backends.cudnn.enabled is false";
    if(context.deterministicCuDNN() || context.deterministicAlgorithms())
        return "deterministic algorithms are on";
    return nullptr;
}

// The convolution of a call in a direction; nothing where PyTorch's own function runs it. The sizes of `image` and
// `output` are those of the convolution, which a transposed one has the other way round.
std::optional<Convolution> convolution_of_call(
    Direction direction, const Tensor& x, const Tensor& w, IntArrayRef image, IntArrayRef output, IntArrayRef stride,
    IntArrayRef padding, IntArrayRef dilation, int64_t groups)
{
    if((x.dim() != 4 && x.dim() != 5) || x.scalar_type() != w.scalar_type() || x.device() != w.device())
        return std::nullopt;
    auto made = convolution_of(direction, x.scalar_type(), image, w.sizes(), output, stride, padding, dilation, groups);
    if(!made)
        return std::nullopt;
    if(const char* reason = unusable(x, w))
    {
        warn_once(reason);
        return std::nullopt;
    }
    made->device = x.device().index();
    made->benchmark = at::globalContext().benchmarkCuDNN();
    return made;
}

// Sizes of the result of a call; empty where it is no convolution of two or three axes.
std::vector<int64_t> sizes_of_result(
    const Tensor& x, const Tensor& w, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed,
    IntArrayRef output_padding, int64_t groups)
{
    if((x.dim() != 4 && x.dim() != 5) || w.dim() != x.dim())
        return {};
    std::vector<int64_t> sizes{x.size(0), transposed ? w.size(1) * groups : w.size(0)};
    for(int64_t axis = 0; axis < x.dim() - 2; ++axis)
    {
        const int64_t extent = x.size(axis + 2), step = of_axis(stride, axis), pads = 2 * of_axis(padding, axis),
                      reach = of_axis(dilation, axis) * (w.size(axis + 2) - 1) + 1;
        if(step < 1)
            return {};
        sizes.push_back(
            transposed ? (extent - 1) * step - pads + reach + of_axis(output_padding, axis)
                       : (extent + pads - reach) / step + 1);
    }
    return sizes;
}

// The result of a plan: `x`, `w` and `y` are those of the convolution, and the one that is not defined is computed.
// Undefined where an operand is not aligned.
Tensor compute(Plan& plan, const Convolution& convolution, Tensor x, Tensor w, Tensor y)
{
    const Tensor& like = x.defined() ? x : w;
    const at::MemoryFormat last = channels_last(like);
    const auto options = like.options();
    uintptr_t addresses = 0;
    Tensor* result = nullptr;
    for(Tensor* tensor : {&x, &w, &y})
    {
        if(!tensor->defined())
        {
            const auto sizes = convolution.direction == kForward ? convolution.y()
                : convolution.direction == kData                 ? convolution.x()
                                                                 : convolution.w();
            *tensor = at::empty(sizes, options.memory_format(last));
            result = tensor;
        }
        else
            *tensor = tensor->contiguous(last);
        addresses |= reinterpret_cast<uintptr_t>(tensor->data_ptr());
    }
    if(addresses % kAlignment)
        return {};
    plan.launch(x, w, y);
    return *result;
}

// The result of the plan of a shape, undefined where PyTorch's own function has to compute it.
template <typename Pytorch, typename Planned>
Tensor by_plan(
    const std::optional<Convolution>& convolution, const Tensor& x, const Tensor& w, const Pytorch& pytorch,
    const Planned& planned)
{
    if(!convolution)
        return {};
    // A guard asks the driver when it ends, which takes longer than all else here.
    c10::OptionalDeviceGuard guard;
    if(plans::current_device() != x.device().index())
        guard.reset_device(x.device());
    const auto plan = shapes().plan(*convolution, [&] {
        return std::make_shared<TimedCall>(*convolution, x.device(), pytorch, planned);
    });
    if(!plan)
        return {};
    try
    {
        const Within within;
        return planned(*plan);
    }
    catch(const c10::OutOfMemoryError&) // PyTorch tries plans with a smaller workspace
    {
        warn_once("a plan found no memory to run in");
    }
    catch(const PlanError& error)
    {
        warn_once("a plan failed (" + std::string(error.what()) + ")");
    }
    shapes().rest(*convolution);
    return {};
}

Tensor convolution(
    const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias, IntArrayRef stride, IntArrayRef padding,
    IntArrayRef dilation, bool transposed, IntArrayRef output_padding, int64_t groups)
{
    const auto pytorch = [&] {
        const Within within;
        return at::native::convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups);
    };
    if(!is_on)
        return pytorch();
    const auto result_sizes = sizes_of_result(x, w, stride, padding, dilation, transposed, output_padding, groups);
    if(result_sizes.empty())
        return pytorch();
    const int64_t outputs = result_sizes[1];
    const bool has_bias = bias && bias->defined();
    if(has_bias && (bias->scalar_type() != x.scalar_type() || bias->device() != x.device() || bias->dim() != 1 ||
                    bias->numel() != outputs))
        return pytorch();
    const auto chosen_for = transposed
        ? convolution_of_call(kData, x, w, result_sizes, x.sizes(), stride, padding, dilation, groups)
        : convolution_of_call(kForward, x, w, x.sizes(), result_sizes, stride, padding, dilation, groups);
    const Tensor result = by_plan(chosen_for, x, w, pytorch, [&](Plan& plan) {
        Tensor y = compute(plan, *chosen_for, transposed ? Tensor() : x, w, transposed ? x : Tensor());
        if(has_bias && y.defined())
        {
            std::vector<int64_t> sizes(x.dim(), 1);
            sizes[1] = outputs;
            y.add_(bias->reshape(sizes));
        }
        return y;
    });
    return result.defined() ? result : pytorch();
}

// PyTorch's own function ends here, and so does what calls it around the dispatcher (AOTInductor) or was traced.
Tensor inner_convolution(
    const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias, IntArrayRef stride, IntArrayRef padding,
    IntArrayRef dilation, bool transposed, IntArrayRef output_padding, int64_t groups, bool benchmark, bool deterministic,
    bool cudnn_enabled, bool allow_tf32)
{
    if(Within::any() || deterministic || !cudnn_enabled)
        return at::native::_convolution(
            x, w, bias, stride, padding, dilation, transposed, output_padding, groups, benchmark, deterministic,
            cudnn_enabled, allow_tf32);
    return tileseer::convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups);
}

Gradients convolution_backward(
    const Tensor& given_grad, const Tensor& given_x, const Tensor& given_w, at::OptionalIntArrayRef bias_sizes,
    IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
    int64_t groups, std::array<bool, 3> mask)
{
    // Converted once for both gradients, where a plan computes one of them.
    Tensor grad = given_grad, x = given_x, w = given_w;
    const auto pytorch = [&](std::array<bool, 3> which) {
        return at::native::convolution_backward(
            grad, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, which);
    };
    if(!is_on)
        return pytorch(mask);
    const IntArrayRef image = transposed ? given_grad.sizes() : given_x.sizes();
    const IntArrayRef output = transposed ? given_x.sizes() : given_grad.sizes();
    Gradients result;
    const auto convert = [](Tensor& tensor) { tensor = tensor.contiguous(channels_last(tensor)); };
    const auto gradient = [&](Direction direction, bool of_weight, const auto& planned) {
        const auto chosen_for = grad.scalar_type() == x.scalar_type()
            ? convolution_of_call(direction, given_x, given_w, image, output, stride, padding, dilation, groups)
            : std::nullopt;
        const auto own = [&] {
            // As it runs beside a plan: the operands are converted already.
            convert(grad);
            convert(of_weight ? x : w);
            const Gradients both = pytorch({!of_weight, of_weight, false});
            return of_weight ? std::get<1>(both) : std::get<0>(both);
        };
        return by_plan(chosen_for, given_x, given_w, own, [&](Plan& plan) {
            convert(grad);
            convert(of_weight ? x : w);
            return planned(plan, *chosen_for);
        });
    };
    if(mask[0])
        std::get<0>(result) = gradient(transposed ? kForward : kData, false, [&](Plan& plan, const Convolution& chosen_for) {
            return compute(plan, chosen_for, transposed ? grad : Tensor(), w, transposed ? Tensor() : grad);
        });
    if(mask[1])
        std::get<1>(result) = gradient(kWeight, true, [&](Plan& plan, const Convolution& chosen_for) {
            return compute(plan, chosen_for, transposed ? grad : x, Tensor(), transposed ? x : grad);
        });
    const std::array<bool, 3> left = {
        mask[0] && !std::get<0>(result).defined(), mask[1] && !std::get<1>(result).defined(), mask[2]};
    if(left == mask)
    {
        grad = given_grad, x = given_x, w = given_w; // where timing converted them
        return pytorch(mask);
    }
    if(left[0] || left[1])
    {
        const Gradients others = pytorch(left);
        if(left[0])
            std::get<0>(result) = std::get<0>(others);
        if(left[1])
            std::get<1>(result) = std::get<1>(others);
        std::get<2>(result) = std::get<2>(others);
    }
    else if(left[2])
    {
        std::vector<int64_t> axes{0};
        for(int64_t axis = 2; axis < grad.dim(); ++axis)
            axes.push_back(axis);
        std::get<2>(result) = at::sum(grad, axes);
    }
    return result;
}

// Says nothing: PyTorch warns that its kernel is overridden, which is meant.
struct Silence : c10::WarningHandler
{
    void process(const c10::Warning&) override {}
};

} // namespace

void use(Asked asked, size_t bound) { shapes().use(std::move(asked), bound); }

void know(const Convolution& convolution, const std::string& plan) { shapes().know(convolution, plan); }

std::pair<size_t, size_t> counts() { return shapes().counts(); }

std::pair<int64_t, std::vector<std::pair<Convolution, int64_t>>> called() { return shapes().called(); }

int64_t version() { return plans::version(); }

void turn(bool on)
{
    is_on = on;
    shapes().turn(on);
    // Neither taken back, since threads of the program may be in them, nor freed: at the end of a process there may be no
    // dispatcher.
    static torch::Library* library = nullptr;
    if(!on || library)
        return;
    static Silence silence;
    const c10::WarningUtils::WarningHandlerGuard guard(&silence);
    library = new torch::Library(torch::Library::IMPL, "aten", plans::kDispatchKey, __FILE__, __LINE__);
    library->impl("convolution", TORCH_FN(convolution));
    library->impl("_convolution", TORCH_FN(inner_convolution));
    library->impl("convolution_backward", TORCH_FN(convolution_backward));
}

} // namespace tileseer
